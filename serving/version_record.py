"""What the manager knows about one version of a model."""

import dataclasses

from tensorflow_serving.apis.get_model_status_pb2 import ModelVersionStatus

from .errors import Code

State = ModelVersionStatus.State


@dataclasses.dataclass
class VersionRecord:
    """A version's life: START, LOADING, AVAILABLE, UNLOADING, END.

    Args:
        version: int.
        path: string. Its directory.
    """

    version: int
    path: str
    state: int = State.START
    wanted: bool = True
    servable: object = None
    users: int = 0
    failures: int = 0
    next_attempt: float = 0.0
    code: Code = Code.OK
    message: str = ""

    @property
    def loaded(self):
        """True while requests may start on it."""
        return self.state == State.AVAILABLE

    @property
    def ended(self):
        """True when it was unloaded or given up."""
        return self.state == State.END

    @property
    def unloaded(self):
        """True when it ended without a fault."""
        return self.ended and self.code == Code.OK
