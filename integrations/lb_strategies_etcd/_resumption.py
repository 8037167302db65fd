"""What can be done about a stream whose member fails: without any I/O.

A stream calls `sent` for each request and `received` for each response; when it fails, `reopen`
says what to send first on another member, or that the caller has to know.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from lb_strategies import FailureKind, Operation, OperationClass


class Resumption(Protocol):
    """The state of one stream, as far as it must survive a change of members."""

    def sent(self, request: object) -> None:
        """Take in that the caller's next request is on its way."""
        ...

    def received(self, response: object) -> object | None:
        """Return what the caller gets to see of `response`; None for nothing."""
        ...

    def reopen(self, kind: FailureKind) -> list[object] | None:
        """Return the requests that a new stream begins with; None if there must not be one."""
        ...


class Replay:
    """A stream of which nothing is known: opened again only if nothing has been sent."""

    def __init__(self) -> None:
        self._unanswered: deque[object] | None = deque()

    def sent(self, request: object) -> None:
        """Keep it, as long as no response has shown that there is a connection."""
        if self._unanswered is not None:
            self._unanswered.append(request)

    def received(self, response: object) -> object | None:
        """Return it as it is."""
        self._unanswered = None
        return response

    def reopen(self, kind: FailureKind) -> list[object] | None:
        """Return all requests if there was no connection at all."""
        if kind in _NEVER_SENT and self._unanswered is not None:
            return list(self._unanswered)
        return None


class KeepAlives:
    """Lease keep-alives: each is answered once, in order, and may be sent twice.

    Renewing a lease again does no harm, and etcd's own client repeats it as well.
    """

    def __init__(self) -> None:
        self._unanswered: deque[object] = deque()

    def sent(self, request: object) -> None:
        """Keep it until it is answered."""
        self._unanswered.append(request)

    def received(self, response: object) -> object | None:
        """Return it as it is."""
        if self._unanswered:
            self._unanswered.popleft()
        return response

    def reopen(self, kind: FailureKind) -> list[object] | None:
        """Return what has no answer yet, unless it is the store that has refused it."""
        return None if kind in _FINAL else list(self._unanswered)


_FINAL = (FailureKind.ANSWER, FailureKind.CANCELLED, FailureKind.TIMED_OUT)
_NEVER_SENT = (
    FailureKind.UNREACHABLE,
    FailureKind.NO_LEADER,
    FailureKind.LEARNER,
    FailureKind.UNAUTHENTICATED,
)


def resumption_of(operation: Operation, *, resume_watches: bool) -> Resumption:
    """Return the state for a new stream."""
    if operation.kind is OperationClass.LEADER_STREAM:
        return KeepAlives()
    return Replay()
