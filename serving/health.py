"""The standard gRPC health service."""

from grpc_health.v1 import health, health_pb2, health_pb2_grpc


def add_health_service(server):
    """Lets load balancers ask whether the server answers, by the real server's service names.

    Args:
        server: `grpc.Server`, not yet started.
    """
    servicer = health.HealthServicer()
    for service in ("", "ModelService", "PredictionService"):
        servicer.set(service, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
