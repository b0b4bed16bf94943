"""Versions of a model: which are wanted, and the state of each."""

import dataclasses

from tensorflow_serving.apis.get_model_status_pb2 import ModelVersionStatus

from .errors import Code

State = ModelVersionStatus.State


@dataclasses.dataclass
class VersionRecord:
    """Life of one version: START, LOADING, AVAILABLE, UNLOADING, END."""

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


def wanted_versions(available, policy):
    """Return the version numbers that a policy wants among those found, the newest first.

    The policy is a `ServableVersionPolicy` proto: `latest` (one version unless it says more, and
    also when nothing is set), `all` or `specific`.
    """
    newest_first = sorted(available, reverse=True)
    choice = policy.WhichOneof("policy_choice")
    if choice == "all":
        return newest_first
    if choice == "specific":
        return [version for version in newest_first if version in policy.specific.versions]
    return newest_first[: max(policy.latest.num_versions, 1)]
