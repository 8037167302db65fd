"""The reads that any server may answer, and what their answers and failures say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import kazoo.client
from kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionLoss,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.handlers.threading import AsyncResult, KazooTimeoutError

from lb_strategies import FailureKind, Operation, OperationClass, StaleReplyError

from ._handlers import UNANSWERED, StampedResult
from ._progress import position_of, stat_position

if TYPE_CHECKING:
    from ._routing import Routing

_INTERRUPTED: Final = (
    ConnectionLoss,
    ConnectionClosedError,
    SessionExpiredError,
    SessionMovedError,
    OperationTimeoutError,
)


class NotConnectedError(ConnectionLoss):
    """There is no connection to the server now, so nothing was sent."""


@dataclass(frozen=True, slots=True, eq=False)
class Method:
    """One of kazoo's reads.

    Attributes:
        operation: What the router has to know.
        begin: Sends it on a session.
        finish: Makes the caller's value of the answer's.
        position: What is seen by seeing the answer, given its zxid.
    """

    operation: Operation
    begin: Callable[[kazoo.client.KazooClient, str], StampedResult]
    finish: Callable[[Any], Any]
    position: Callable[[Any, int], int]


def _method(
    name: str,
    begin: Callable[[kazoo.client.KazooClient, str], StampedResult],
    *,
    finish: Callable[[Any], Any] = lambda value: value,
    position: Callable[[Any, int], int] = position_of,
) -> Method:
    return Method(Operation(OperationClass.LINEARIZABLE_READ, name), begin, finish, position)


_KAZOO: Final = kazoo.client.KazooClient
"""Its own methods, also where a client has others of the same names."""

# ZooKeeper answers every read from the state of the server that is asked, and makes no difference
# between followers and observers. None of them may have lost the leader, however.
GET: Final = _method("get", lambda client, path: _KAZOO.get_async(client, path))
EXISTS: Final = _method(
    "exists",
    lambda client, path: _KAZOO.exists_async(client, path),
    position=lambda stat, zxid: zxid if stat is None else stat_position(stat),
)
# The stat is asked for also if the caller does not want it, because it tells the position.
GET_CHILDREN: Final = _method(
    "get_children",
    lambda client, path: _KAZOO.get_children_async(client, path, include_data=True),
    finish=lambda value: value[0],
)
GET_CHILDREN_AND_STAT: Final = _method(
    "get_children", lambda client, path: _KAZOO.get_children_async(client, path, include_data=True)
)
GET_ACLS: Final = _method(
    "get_acls",
    lambda client, path: _KAZOO.get_acls_async(client, path),
    position=lambda value, zxid: zxid,
)


def children_method(include_data: bool) -> Method:
    """Return how children are read, with their parent's stat or without."""
    return GET_CHILDREN_AND_STAT if include_data else GET_CHILDREN


@dataclass(slots=True, eq=False)
class Read:
    """One read of the caller's.

    Attributes:
        routing: Knows where to send it.
        method: Which.
        path: Of the node, below the chroot.
        zxid: The position that the answer must have.
        events: How many watches had fired when it began, if it must have seen these.
        syncs: Whether the server is to catch up with the leader first.
        is_fenced: Whether a write is to come before it.
        is_here: Whether it goes where writes go.
    """

    routing: Routing
    method: Method
    path: str
    zxid: int = 0
    events: int | None = None
    syncs: bool = False
    is_fenced: bool = False
    is_here: bool = False

    def fetch(self) -> Any:
        """Do it and return the value."""
        return self.routing.fetch(self)

    def fetch_async(self) -> AsyncResult:
        """Do it; return kazoo's result at once."""
        return self.routing.fetch_async(self)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered, and how far it was."""

    value: Any
    zxid: int


class Sending:
    """A read that is on its way to one server, behind a sync if it needs one.

    The two are pipelined: a session's requests are answered in their order.
    """

    __slots__ = ("_sync", "has_synced", "result")

    def __init__(self, session: kazoo.client.KazooClient, read: Read, *, syncs: bool) -> None:
        self.has_synced = syncs
        self._sync: AsyncResult | None = session.sync_async(read.path) if syncs else None
        self.result = read.method.begin(session, read.path)

    def is_behind(self, read: Read) -> bool:
        """Whether the answer is one, but older than `read` demands."""
        error = self.result.exception
        return self.result.zxid < read.zxid and (error is None or not isinstance(error, UNANSWERED))

    def answer(self, read: Read) -> Answer:
        """Return the answer, which must have come.

        Raises:
            StaleReplyError: it is older than `read` demands.
            KazooException: there is none, or it is an error.
        """
        if self._sync is not None and self._sync.exception is not None:
            raise self._sync.exception
        if self.is_behind(read):
            raise StaleReplyError(f"it is at {self.result.zxid:#x} and not at {read.zxid:#x} yet")
        if self.result.exception is not None:
            raise self.result.exception
        return Answer(self.result.value, self.result.zxid)


def failure_kind(error: BaseException) -> FailureKind:
    """Say what an error means for a read."""
    if isinstance(error, NotConnectedError):
        return FailureKind.UNREACHABLE
    if isinstance(error, _INTERRUPTED):
        return FailureKind.INTERRUPTED
    if isinstance(error, StaleReplyError):
        return FailureKind.BEHIND
    if isinstance(error, KazooTimeoutError):
        return FailureKind.TIMED_OUT
    return FailureKind.ANSWER
