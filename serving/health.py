"""The standard gRPC health service."""

from grpc_health.v1 import health, health_pb2, health_pb2_grpc

_SERVICES = ("", "ModelService", "PredictionService")  # the real server's names


class HealthService(health.HealthServicer):
    """Lets load balancers ask whether the server answers, or watch it."""

    def __init__(self):
        super().__init__()
        self._watchers = set()
        self._stopping = False
        for service in _SERVICES:
            self.set(service, health_pb2.HealthCheckResponse.SERVING)

    def Watch(self, request, context, send_response_callback=None):
        """Tells the state, and the next one when there is one."""

        def send(response):
            if response is None:
                if send not in self._watchers:
                    return  # has ended already
                self._watchers.discard(send)
            send_response_callback(response)

        self._watchers.add(send)
        super().Watch(request, context, send)
        if self._stopping:  # this call came in after the others were ended
            send(None)

    def stop(self):
        """Tells all who watch that no new request is taken, and ends their calls.

        A call that goes on would keep the server from stopping.
        """
        self.enter_graceful_shutdown()
        self._stopping = True
        for send in list(self._watchers):
            send(None)


def add_health_service(server):
    """Adds the service to a `grpc.Server`, not yet started, and returns it."""
    service = HealthService()
    health_pb2_grpc.add_HealthServicer_to_server(service, server)
    return service
