"""Streams that survive their member, as far as that can be done: threads."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import grpc

from lb_strategies import FailureKind, OperationClass
from lb_strategies.membership import Endpoint

from ._call import Call
from ._resumption import Resumption

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


class Requests:
    """The caller's requests, for one stream after the other.

    A thread of its own reads the caller's iterator, which may block for ever: whichever stream is
    open gets what comes, and none keeps what it could not send.

    Args:
        source: the caller's iterator.
        sent: is told of each request that a stream takes.
    """

    def __init__(self, source: Iterator[object], sent: Callable[[object], None]) -> None:
        self._waiting: deque[object] = deque()
        self._changed = threading.Condition()
        self._sent = sent
        self._stream = 0
        self._has_ended = False
        self._failure: BaseException | None = None
        threading.Thread(
            target=self._read, args=(source,), name="lb-stream-requests", daemon=True
        ).start()

    def _read(self, source: Iterator[object]) -> None:
        try:
            for request in source:
                with self._changed:
                    if self._has_ended:
                        return
                    self._waiting.append(request)
                    self._changed.notify_all()
        except BaseException as error:
            self._failure = error  # gRPC reports it, as it does for a plain stream
        self.end()

    def end(self) -> None:
        """Let every stream end its requests once it has sent what is there."""
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def feed(self, first: list[object]) -> Iterator[object]:
        """Return the requests of a new stream; those of the one before end."""
        with self._changed:
            self._stream += 1
            mine = self._stream
            self._changed.notify_all()
        return self._feed(first, mine)

    def _feed(self, first: list[object], mine: int) -> Iterator[object]:
        yield from first
        while True:
            with self._changed:
                while not self._waiting and not self._has_ended and mine == self._stream:
                    self._changed.wait()
                if mine != self._stream:
                    return
                if not self._waiting:
                    if self._failure is not None:
                        raise self._failure
                    return
                request = self._waiting.popleft()
                self._sent(request)
            yield request


class RoutedStream(grpc.Call):
    """An iterator over the responses of one method, from one member after another.

    Args:
        channel: the routing channel.
        call: what the caller asked for.
        resumption: what to do when the member fails.
        timeout: seconds in all; None for no end.
        requests: the caller's, for a method that takes a stream of them.
    """

    def __init__(
        self,
        channel: RoutingChannel,
        call: Call,
        resumption: Resumption,
        timeout: float | None,
        requests: Iterator[object] | None,
    ) -> None:
        self._channel = channel
        self._call = call
        self._resumption = resumption
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._requests = None if requests is None else Requests(requests, resumption.sent)
        if requests is None:
            resumption.sent(call.message)
        self._lock = threading.Lock()
        self._is_cancelled = False
        self._lost: str | None = None
        """The member, if it is this client that cut the connection."""
        self._tried: tuple[str, ...] = ()
        self._failing_since: float | None = None
        self._pauses = 0
        self.member = ""
        """Who serves it now."""
        self._inner: Any
        self._open([])

    def _open(self, first: list[object]) -> None:
        call = self._call
        self.member = self._channel.assign(call, self._tried)
        self._lost = None
        timeout = None if self._deadline is None else self._deadline - time.monotonic()
        message = call.message if self._requests is None else self._requests.feed(first)
        inner = self._channel.open(call, self.member, message, timeout)
        with self._lock:
            self._inner = inner
            if self._is_cancelled:
                inner.cancel()

    # -- responses --------------------------------------------------------------------------

    def __iter__(self) -> RoutedStream:
        return self

    def __next__(self) -> Any:
        while True:
            try:
                response = next(self._inner)
            except grpc.RpcError as error:
                self._recover(error)
                continue
            self._tried, self._failing_since, self._pauses = (), None, 0
            seen = self._resumption.received(response)
            if seen is not None:
                return seen

    def _recover(self, error: grpc.RpcError) -> None:
        """Open the stream on another member, or raise `error`."""
        member, lost = self.member, self._lost
        kind = FailureKind.INTERRUPTED if lost else self._call.failure_kind(error)
        if self._is_cancelled:
            raise error
        self._channel.stream_failed(self._call, member, kind)
        first = self._resumption.reopen(kind)
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        give_up = self._failing_since + self._channel.retry_for
        if first is None or now >= (give_up if self._deadline is None else self._deadline):
            if lost:
                raise MemberLostError(lost) from error
            raise error
        self._tried = (*self._tried, member)
        if self._channel.were_all(self._call, self._tried):
            self._tried = ()
            time.sleep(self._channel.next_pause(self._pauses))
            self._pauses += 1
        self._open(first)

    def follow(self, leader: Endpoint | None, reachable: tuple[Endpoint, ...]) -> None:
        """Leave the member if it has stopped answering, or a stream for the leader is not there.

        The connection is cut; whoever reads goes on elsewhere, or gets a `MemberLostError`.
        """
        is_astray = (
            self._call.operation.kind is OperationClass.LEADER_STREAM
            and leader is not None
            and leader != self.member
        )
        with self._lock:
            if self._lost is None and (self.member not in reachable or is_astray):
                self._lost = self.member
                self._inner.cancel()

    # -- what a plain stream has ------------------------------------------------------------

    def cancel(self) -> bool:
        """End the stream for good."""
        with self._lock:
            self._is_cancelled = True
            if self._requests is not None:
                self._requests.end()
            return bool(self._inner.cancel())

    def __getattr__(self, name: str) -> Any:
        # Whatever else grpc's own object for this kind of call has, such as `add_done_callback`:
        # of the member that serves it now.
        return getattr(self._inner, name)

    def is_active(self) -> bool:
        """Whether the stream is open."""
        return bool(self._inner.is_active())

    def time_remaining(self) -> float | None:
        """Return the seconds that are left; None if there is no limit."""
        if self._deadline is None:
            return None
        return max(0.0, self._deadline - time.monotonic())

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Have `callback` called when the stream of the present member ends."""
        return bool(self._inner.add_callback(callback))

    def initial_metadata(self) -> Any:
        """Return what the present member sent first."""
        return self._inner.initial_metadata()

    def trailing_metadata(self) -> Any:
        """Return what the last member sent last."""
        return self._inner.trailing_metadata()

    def code(self) -> grpc.StatusCode:
        """Return how the stream ended; waits for that."""
        code: grpc.StatusCode = self._inner.code()
        return code

    def details(self) -> str:
        """Return the details of how it ended; waits for that."""
        details: str = self._inner.details()
        return details
