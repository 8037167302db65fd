"""What an operation needs of a leader-based store, and what its failure says.

Source: the rule of the paper that this project implements. A follower forwards a write to the
leader, so a write sent there takes a useless hop; a linearizable read is confirmed with the
leader and then served by whichever member was asked. No latency tells the two apart, because the
cost is paid inside the cluster: operations have to be classified.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum


class OperationClass(Enum):
    """Where an operation may go."""

    WRITE = "write"
    """Through the leader: whatever goes through the log, or only the leader answers."""
    LINEARIZABLE_READ = "linearizable_read"
    """Any voting member of the read pool."""
    STALE_READ = "stale_read"
    """Any member, learners and observers too; the answer may be old."""
    LEADER_STREAM = "leader_stream"
    """A long-lived stream that the leader serves; re-opened when the leader changes."""
    STICKY_STREAM = "sticky_stream"
    """A long-lived stream on one healthy voting member, such as a watch."""
    MEMBER = "member"
    """About one member, which the caller names."""

    # Attributes, and no properties, because every request asks for them.
    is_read: bool
    """Whether doing it twice changes nothing, so that it may be retried after any failure."""
    needs_leader: bool
    """Whether it goes to the leader, as long as one is known."""
    needs_voter: bool
    """Whether learners and observers refuse it."""

    def __init__(self, value: str) -> None:
        self.is_read = value in ("linearizable_read", "stale_read")
        self.needs_leader = value in ("write", "leader_stream")
        self.needs_voter = value not in ("stale_read", "member")


@dataclass(frozen=True, slots=True)
class Operation:
    """What the router has to know of a request.

    Attributes:
        kind: Where it may go.
        label: Short name of what it does; latencies are compared among equal ones.
        timed: Whether the time that it takes says something of the member: not if it blocks,
            such as waiting for a lock.
        member: The member that the caller named, for `OperationClass.MEMBER`; None if any will do.
    """

    kind: OperationClass
    label: Hashable = None
    timed: bool = True
    member: Hashable | None = None


class FailureKind(Enum):
    """What a failed attempt says of the member, and of whether it may be sent again."""

    UNREACHABLE = "unreachable"
    """No connection, so nothing was sent: any operation may go to another member."""
    NO_LEADER = "no_leader"
    """Refused before it was proposed, because the member knows no leader."""
    DROPPED = "dropped"
    """The proposal was dropped, as in a leader transfer: the same member may have it again."""
    LEARNER = "learner"
    """The member may not serve this kind of operation: it is a learner or an observer."""
    UNAUTHENTICATED = "unauthenticated"
    """The token is no longer valid there: authenticate once more, then send again."""
    BEHIND = "behind"
    """The member has not reached the position that the operation asks for."""
    OVERLOADED = "overloaded"
    """Refused for load, before anything was done: send again after a pause."""
    INTERRUPTED = "interrupted"
    """The connection broke on the way: it may have been executed."""
    LEADER_LOST = "leader_lost"
    """The member works, but the cluster changed its leader or lost its quorum on the way: it may
    have been executed. Such are "leader changed" and a time-out that the server reports."""
    TIMED_OUT = "timed_out"
    """No answer in time: it may have been executed."""
    CANCELLED = "cancelled"
    """The caller gave up: it may have been executed."""
    ANSWER = "answer"
    """No failure of the member at all, but the store's own answer: the caller's."""

    @property
    def may_have_executed(self) -> bool:
        """Whether the store may have done, or may still do, what it was asked."""
        return self in _MAY_HAVE_EXECUTED


_MAY_HAVE_EXECUTED = (
    FailureKind.INTERRUPTED,
    FailureKind.LEADER_LOST,
    FailureKind.TIMED_OUT,
    FailureKind.CANCELLED,
    FailureKind.ANSWER,
)
