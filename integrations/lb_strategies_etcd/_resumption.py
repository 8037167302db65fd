"""What can be done about a stream whose member fails: without any I/O.

A stream calls `sent` for each request and `received` for each response; when it fails, `reopen`
says what to send first on another member, or that the caller has to know.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, Protocol

from lb_strategies import FailureKind, Operation, OperationClass

_FINAL: Final = (FailureKind.ANSWER, FailureKind.CANCELLED, FailureKind.TIMED_OUT)
"""After these no stream is opened again: it is the caller's time, or the store's last word."""
_NEVER_SENT: Final = (
    FailureKind.UNREACHABLE,
    FailureKind.NO_LEADER,
    FailureKind.LEARNER,
    FailureKind.UNAUTHENTICATED,
)
_WATCH_ID: Final = 7
"""Number of ``WatchCreateRequest.watch_id``, which clients from before 3.4 do not know."""
_CREATE = "create_request"
_NO_WATCH: Final = -1
"""The id in answers to progress requests."""


class OldTokenError(Exception):
    """A watch was refused, it may be because the token of its stream is old."""


class Resumption(Protocol):
    """The state of one stream, as far as it must survive a change of members."""

    def sent(self, request: object) -> None:
        """Take in that the caller's next request is on its way."""
        ...

    def received(self, response: object) -> object | None:
        """Return what the caller gets to see of `response`; None for nothing.

        Raises:
            OldTokenError: the stream is to be opened again, with a new token.
        """
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


class Watches(Replay):
    """The watches of one stream, each of which goes on after the last revision it got whole.

    Messages are those of any client, and no message of the caller's is ever changed. Of those
    that are none of etcd's, such as bytes, nothing is known, and they are treated accordingly.

    What is relied on, of the server's ``api/v3rpc/watch.go`` since 3.4: creations are answered in
    order, and before anything else of theirs; a creation may name its id, of which 0 stands for
    the lowest that the stream has not given out, so for 0 itself on a new one; a response holds
    whole revisions, unless it says that it is a fragment, and then the fragments are in order.

    Args:
        has_user: whether a new stream gets a new token. The server checks each creation by the
            token that its stream was opened with, and refuses it if that is old.
    """

    def __init__(self, *, has_user: bool = False) -> None:
        super().__init__()
        self._has_user = has_user
        self._refused: object = None
        """The creation for which the stream was opened again last."""
        self._is_opaque = False
        self._live: dict[int, _Watch] = {}
        self._asked: deque[Any] = deque()
        """The caller's requests, in order; of those for progress one at most."""
        self._restoring: deque[_Watch] = deque()
        """Whose creation this stream has not answered, in order; before any of the caller's."""

    def sent(self, request: object) -> None:
        """Keep it until it is answered."""
        super().sent(request)
        try:
            kind = request.WhichOneof("request_union")  # type: ignore[attr-defined]
        except (AttributeError, TypeError, ValueError):
            self._is_opaque = True
            return
        if self._will_be_answered(kind, request):
            self._asked.append(_copy(request))

    def _will_be_answered(self, kind: str | None, request: Any) -> bool:
        if kind == "cancel_request":
            watch_id = request.cancel_request.watch_id
            # A caller that chose the id itself need not wait for the watch.
            return watch_id in self._live or any(
                _created_as(asked) == watch_id for asked in self._asked
            )
        return kind == _CREATE or not any(
            asked.WhichOneof("request_union") == kind for asked in self._asked
        )

    def received(self, response: object) -> object | None:
        """Return it, but for what the caller has got already, or never asked for."""
        super().received(response)
        return response if self._is_opaque else self._received(response)

    def _received(self, response: Any) -> object | None:
        if response.created:
            return self._restored(response) if self._restoring else self._created(response)
        watch_id = response.watch_id
        if response.canceled:
            self._forget(watch_id)
            return response
        if watch_id == _NO_WATCH:
            # It tells no watch how far it is: before 3.5.8 and 3.4.25 it may overtake events
            # (etcd#15220).
            self._answered("progress_request")
            return response
        watch = self._live.get(watch_id)
        return response if watch is None else watch.received(response)

    def _created(self, response: Any) -> object:
        if self._has_user and response.canceled and _is_denied(response.cancel_reason):
            asked = (one for one in self._asked if one.WhichOneof("request_union") == _CREATE)
            request = next(asked, None)
            if request is not None and request is not self._refused:
                self._refused = request
                raise OldTokenError(response.cancel_reason)
        request = self._answered(_CREATE)
        if request is not None and not response.canceled:
            watch_id = response.watch_id
            self._live[watch_id] = _Watch(watch_id, request, response.header.revision)
        return response

    def _restored(self, response: Any) -> object | None:
        watch = self._restoring.popleft()
        if response.canceled:
            # To the caller it has existed for long, under an id that is missing here.
            response.created = False
            response.watch_id = watch.watch_id
            self._forget(watch.watch_id)
            return response
        if response.watch_id != watch.watch_id:
            raise RuntimeError(f"watch {watch.watch_id} came back as {response.watch_id}")
        return None

    def _answered(self, kind: str) -> Any:
        """Return the oldest request of this kind, which is answered now; None if there is none."""
        for request in self._asked:
            if request.WhichOneof("request_union") == kind:
                self._asked.remove(request)
                return request
        return None

    def _forget(self, watch_id: int) -> None:
        self._live.pop(watch_id, None)
        self._asked = deque(
            asked
            for asked in self._asked
            if asked.WhichOneof("request_union") != "cancel_request"
            or asked.cancel_request.watch_id != watch_id
        )

    def reopen(self, kind: FailureKind) -> list[object] | None:
        """Return the creations of all watches, and what has no answer yet."""
        if self._is_opaque:
            return super().reopen(kind)
        if kind in _FINAL:
            return None
        # Watch 0 gets its id as nobody else who leaves it to the server comes before.
        self._restoring = deque(self._live.values())
        return [*(watch.request() for watch in self._restoring), *self._asked]


class _Watch:
    """One watch, and how much of it the caller has got.

    Args:
        watch_id: as the caller knows it.
        request: what created it.
        revision: of the store when it was created.
    """

    def __init__(self, watch_id: int, request: Any, revision: int) -> None:
        self.watch_id = watch_id
        self._request = request
        self._next_revision: int = request.create_request.start_revision or revision + 1
        """All before it has been delivered."""
        self._partly: set[tuple[int, bytes]] = set()
        """What has been delivered of `_next_revision`, as revisions and keys."""

    def request(self) -> object:
        """Return what creates it again, from where it stands."""
        request = _copy(self._request)
        create = request.create_request
        create.start_revision = self._next_revision
        try:
            create.watch_id = self.watch_id
        except AttributeError:
            create.MergeFromString(_field(_WATCH_ID, self.watch_id))  # is sent as it is
        return request

    def received(self, response: Any) -> object | None:
        """Return `response` without the events that have been delivered; None for nothing."""
        events = response.events
        if not events:
            # A notification of progress; unlike what is asked for, it comes in order.
            self._next_revision = max(self._next_revision, response.header.revision + 1)
            return response
        revision = events[-1].kv.mod_revision
        if self._partly:
            for index in reversed(range(len(events))):
                if _identity(events[index]) in self._partly:
                    del events[index]
        if not getattr(response, "fragment", False):
            self._next_revision = max(self._next_revision, revision + 1)
            self._partly.clear()
            return response  # even if it is empty: it ends the fragments that the caller has
        self._partly = {one for one in self._partly if one[0] == revision}
        self._partly.update(
            _identity(event) for event in events if event.kv.mod_revision == revision
        )
        self._next_revision = max(self._next_revision, revision)
        return response if events else None


def _is_denied(reason: str) -> bool:
    # For an old token, servers up to 3.5 say the same as for want of permission.
    return any(text in reason for text in ("permission denied", "auth token", "auth store"))


def _identity(event: Any) -> tuple[int, bytes]:
    return event.kv.mod_revision, event.kv.key  # no revision has a key twice


def _created_as(request: Any) -> int | None:
    """Return the id that a creation asks for."""
    if request.WhichOneof("request_union") != _CREATE:
        return None
    return getattr(request.create_request, "watch_id", None) or None


def _copy(message: Any) -> Any:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def _field(number: int, value: int) -> bytes:
    """Return an integer field in protobuf's wire format."""
    value &= 2**64 - 1
    data = bytearray([number << 3])
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def resumption_of(
    operation: Operation, *, resume_watches: bool, has_user: bool = False
) -> Resumption:
    """Return the state for a new stream."""
    if operation.kind is OperationClass.LEADER_STREAM:
        return KeepAlives()
    if resume_watches and operation.label == "Watch":
        return Watches(has_user=has_user)
    return Replay()
