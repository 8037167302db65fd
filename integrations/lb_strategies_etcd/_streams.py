"""Streams that survive their member, as far as that can be done: threads."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any

import grpc

from lb_strategies import FailureKind, OperationClass
from lb_strategies.membership import Endpoint

from ._call import Call
from ._requests import Requests
from ._resumption import OldTokenError, Resumption

if TYPE_CHECKING:
    from .channel import RoutingChannel


class MemberLostError(grpc.RpcError):
    """The member of a stream has stopped answering, though the connection still stands."""

    def __init__(self, member: str) -> None:
        super().__init__(member)
        self._member = member

    def code(self) -> grpc.StatusCode:
        """Return UNAVAILABLE, as for a connection that broke."""
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        """Return which member it was."""
        return f"{self._member} does not answer polls any more"

    def __str__(self) -> str:
        return self.details()


class OpenStreams:
    """The streams of a channel, each of which lives only as long as its caller holds it."""

    def __init__(self) -> None:
        self._streams: weakref.WeakSet[RoutedStream] = weakref.WeakSet()
        self._lock = threading.Lock()

    def add(self, stream: RoutedStream) -> None:
        """Let it hear of the members from now on."""
        with self._lock:
            self._streams.add(stream)

    def follow(self, leader: Endpoint | None, answering: Collection[Endpoint]) -> None:
        """Tell each of the leader and of the members that answer polls."""
        with self._lock:
            streams = list(self._streams)
        for stream in streams:
            stream.follow(leader, answering)


class _Shared:
    """A resumption that both ends of a stream use, each in a thread of its own."""

    def __init__(self, resumption: Resumption) -> None:
        self._resumption = resumption
        self._lock = threading.Lock()

    def sent(self, request: object) -> None:
        with self._lock:
            self._resumption.sent(request)

    def received(self, response: object) -> object | None:
        with self._lock:
            return self._resumption.received(response)

    def reopen(self, kind: FailureKind) -> list[object] | None:
        with self._lock:
            return self._resumption.reopen(kind)


class RoutedStream(grpc.Call):
    """An iterator over the responses of one method, from one member after another.

    It is opened on another member by whoever reads it. One thread may read it; any may cancel it.

    Args:
        channel: the routing channel.
        call: what the caller asked for.
        resumption: what to do when the member fails.
        timeout: seconds in all; None for no end.
        requests: the caller's, for a method that takes a stream of them.

    Raises:
        grpc.RpcError: no member could be asked for a token.
    """

    _requests: Requests | None = None

    def __init__(
        self,
        channel: RoutingChannel,
        call: Call,
        resumption: Resumption,
        timeout: float | None,
        requests: Iterator[object] | None,
    ) -> None:
        self._inner: Any = None
        self._channel = channel
        self._call = call
        self._resumption = _Shared(resumption)
        self._deadline = None if timeout is None else time.monotonic() + timeout
        if requests is None:
            resumption.sent(call.message)
        else:
            self._requests = Requests(requests, self._resumption.sent)
        self._lock = threading.Lock()
        self._cancelled = threading.Event()
        self._callbacks: list[Callable[[], object]] | None = []
        """None once the stream has ended."""
        self._error: grpc.RpcError | None = None
        self._lost: str | None = None
        """The member, if it is this client that cut the connection."""
        self._tried: tuple[str, ...] = ()
        self._failing_since: float | None = None
        self._pauses = 0
        self.member = ""
        """Who serves it now."""
        self._open([])

    def __del__(self) -> None:
        # Nobody can read it any more. As a plain stream, it is cancelled when grpc's is gone.
        if self._requests is not None:
            self._requests.end()

    def _open(self, first: list[object]) -> None:
        """Open it on the next member that gives a token, if one is needed."""
        call = self._call
        while True:
            member = self._channel.assign(call, self._tried)
            message = call.message if self._requests is None else self._requests.feed(first)
            timeout = None if self._deadline is None else self._deadline - time.monotonic()
            try:
                inner = self._channel.open(call, member, message, timeout)
            except grpc.RpcError as error:
                kind = call.failure_kind(error)
                is_final = kind is FailureKind.ANSWER
                first = self._again(error, kind if is_final else FailureKind.UNREACHABLE, member)
                continue
            with self._lock:
                self._inner, self.member, self._lost = inner, member, None
                if self._cancelled.is_set():
                    inner.cancel()
            return

    # -- responses --------------------------------------------------------------------------

    def __iter__(self) -> RoutedStream:
        return self

    def __next__(self) -> Any:
        while True:
            if self._error is not None:
                raise self._error
            try:
                response = next(self._inner)
            except StopIteration:
                self._end()
                raise
            except grpc.RpcError as error:
                self._recover(error)
                continue
            self._tried, self._failing_since, self._pauses = (), None, 0
            try:
                seen = self._resumption.received(response)
            except OldTokenError:
                self._renew()
                continue
            if seen is not None:
                return seen

    def _renew(self) -> None:
        """Open the stream again, with a new token."""
        if self._requests is not None:
            self._requests.detach()
        self._inner.cancel()
        self._open(self._resumption.reopen(FailureKind.UNAUTHENTICATED) or [])

    def _recover(self, error: grpc.RpcError) -> None:
        """Open the stream on another member, or raise `error`."""
        member, lost = self.member, self._lost
        if self._cancelled.is_set():
            self._end(error)
            raise error
        kind = FailureKind.INTERRUPTED if lost else self._call.failure_kind(error)
        self._open(self._again(error, kind, member, lost))

    def _again(
        self, error: grpc.RpcError, kind: FailureKind, member: str, lost: str | None = None
    ) -> list[object]:
        """Return what to send first on another member, or raise the error if that is no use."""
        # What this client has cut itself says nothing new of the member.
        is_of_use = lost is not None or self._channel.stream_failed(self._call, member, kind)
        if self._requests is not None:
            self._requests.detach()  # or a request could go to the stream that has failed
        first = self._resumption.reopen(kind) if is_of_use else None
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        give_up = self._failing_since + self._channel.retry_for
        if self._deadline is not None:
            give_up = min(give_up, self._deadline)
        if first is None or now >= give_up or self._cancelled.is_set():
            if lost is not None:
                error = MemberLostError(lost)
            self._end(error)
            raise error
        self._tried = (*self._tried, member)
        if self._channel.were_all(self._call, self._tried):
            self._tried = ()
            self._cancelled.wait(self._channel.next_pause(self._pauses))
            self._pauses += 1
        return first

    def _end(self, error: grpc.RpcError | None = None) -> None:
        """Let nothing of the stream go on."""
        self._error = error
        if self._requests is not None:
            self._requests.end()
            self._requests.detach()
        with self._lock:
            callbacks, self._callbacks = self._callbacks or [], None
        for callback in callbacks:
            callback()

    def follow(self, leader: Endpoint | None, answering: Collection[Endpoint]) -> None:
        """Leave the member if it has stopped answering, or a stream for the leader is not there.

        The connection is cut; whoever reads goes on elsewhere, or gets a `MemberLostError`.
        """
        needs_leader = self._call.operation.kind is OperationClass.LEADER_STREAM
        with self._lock:
            if self._lost is not None or self._callbacks is None or not self.member:
                return
            is_astray = needs_leader and leader not in (None, self.member)
            if is_astray or self.member not in answering:
                self._lost = self.member
                self._inner.cancel()

    # -- what a plain stream has ------------------------------------------------------------

    def cancel(self) -> bool:
        """End the stream for good."""
        with self._lock:
            self._cancelled.set()
            is_cancelled = bool(self._inner.cancel())
        self._end()
        return is_cancelled

    def __getattr__(self, name: str) -> Any:
        # Whatever else grpc's own object for this kind of call has: of the member that serves it.
        return getattr(self._inner, name)

    def is_active(self) -> bool:
        """Whether the stream is open."""
        return self._callbacks is not None and bool(self._inner.is_active())

    def time_remaining(self) -> float | None:
        """Return the seconds that are left; None if there is no limit."""
        if self._deadline is None:
            return None
        return max(0.0, self._deadline - time.monotonic())

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Have `callback` called when the stream has ended for good, or return False if it has.

        That it has failed, and goes on nowhere, turns out when it is read.
        """
        with self._lock:
            if self._callbacks is not None:
                self._callbacks.append(callback)
            return self._callbacks is not None

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Have `callback` called with this stream when it has ended for good, at once if it has."""
        own = weakref.ref(self)  # it must not keep itself alive

        def call() -> None:
            stream = own()
            if stream is not None:
                callback(stream)

        if not self.add_callback(call):
            call()

    def initial_metadata(self) -> Any:
        """Return what the present member sent first."""
        return self._inner.initial_metadata()

    def trailing_metadata(self) -> Any:
        """Return what the last member sent last."""
        return self._inner.trailing_metadata()

    def code(self) -> grpc.StatusCode:
        """Return how the stream ended; waits for that."""
        code: grpc.StatusCode = self._ended().code()
        return code

    def details(self) -> str:
        """Return the details of how it ended; waits for that."""
        details: str = self._ended().details()
        return details

    def _ended(self) -> Any:
        return self._inner if self._error is None else self._error
