"""Leader-based stores: writes pinned to the leader, reads over the healthy members.

`operation` names what is to be told apart, `leadership` follows the leader, `router` decides where
to, `retries` what to do after a failure, `plan` is the shape of its answer: all these are told the
time and do no I/O. `drivers`, `polling`, `mixin` and `mixin_async` put them to work in a client.
"""

from .drivers import drive, drive_async
from .leadership import LeadershipTracker, MemberStatus, StatusRefusedError
from .mixin import ConsensusRoutingMixin
from .mixin_async import AsyncConsensusRoutingMixin
from .operation import FailureKind, Operation, OperationClass
from .options import ConsensusOptions
from .plan import Authenticate, Done, Failure, Plan, Reply, Send, Sleep
from .router import ConsensusRouter

__all__ = [
    "AsyncConsensusRoutingMixin",
    "Authenticate",
    "ConsensusOptions",
    "ConsensusRouter",
    "ConsensusRoutingMixin",
    "Done",
    "Failure",
    "FailureKind",
    "LeadershipTracker",
    "MemberStatus",
    "Operation",
    "OperationClass",
    "Plan",
    "Reply",
    "Send",
    "Sleep",
    "StatusRefusedError",
    "drive",
    "drive_async",
]
