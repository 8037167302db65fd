"""Streams that survive their member, as far as that can be done: asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from time import monotonic
from typing import TYPE_CHECKING, Any

import grpc.aio

from lb_strategies import FailureKind, OperationClass
from lb_strategies.membership import Endpoint

from ._call import Call
from ._requests_aio import AsyncRequests
from ._resumption import OldTokenError, Resumption
from ._streams import MemberLostError

if TYPE_CHECKING:
    from .aio_channel import AsyncRoutingChannel

EOF: Any = grpc.aio.EOF


class AsyncMemberLostError(MemberLostError, grpc.aio.AioRpcError):
    """A `MemberLostError` for those who expect the errors of ``grpc.aio`` only."""

    def __init__(self, member: str) -> None:
        MemberLostError.__init__(self, member)
        self._code = grpc.StatusCode.UNAVAILABLE
        self._details = self.details()
        self._debug_error_string = None

    def __repr__(self) -> str:
        return f"AsyncMemberLostError({self._member!r})"


class AsyncRoutedStream:
    """The responses of one method, from one member after another.

    Args:
        channel: the routing channel.
        call: what the caller asked for.
        timeout: seconds in all; None for no end.
    """

    _requests: AsyncRequests | None = None

    def __init__(self, channel: AsyncRoutingChannel, call: Call, timeout: float | None) -> None:
        self._channel = channel
        self._call = call
        self._deadline = None if timeout is None else monotonic() + timeout
        self._resumption: Resumption = channel.resumption_of(call)
        self._callbacks: list[Callable[[Any], None]] = []
        self._is_over = False
        self._is_cancelled = False
        self._error: BaseException | None = None
        self._lost: str | None = None
        """The member, if it is this client that cut the connection."""
        self._tried: tuple[str, ...] = ()
        self._failing_since: float | None = None
        self._pauses = 0
        # A watch with an old token does not fail, it is cancelled for want of permission.
        self._needs_token = call.operation.kind is OperationClass.STICKY_STREAM
        self.member = ""
        """Who serves it now."""
        self._inner: Any = None
        self._opening: asyncio.Task[None] | None = None
        self._begin()

    def _begin(self) -> None:
        """Take the first request in, and open the first stream."""
        self._resumption.sent(self._call.message)
        self._open([])

    def _open(self, first: list[object]) -> None:
        self.member = self._channel.assign(self._call, self._tried)
        self._lost = None
        self._inner = None
        if self._channel.has_to_authenticate(self.member, anew=self._needs_token):
            self._opening = self._channel.spawn(self._open_with_token(first))
        else:
            self._connect(first)

    async def _open_with_token(self, first: list[object]) -> None:
        left, limit = self.time_remaining(), self._channel.retry_for
        try:
            await self._channel.authenticate(self.member, limit if left is None else left)
            self._connect(first)
        except Exception as error:
            self._inner = _NotOpened(error)

    def _connect(self, first: list[object]) -> None:
        message = self._call.message if self._requests is None else self._requests.feed(first)
        inner = self._channel.begin(self._call, self.member, self.time_remaining(), message)
        self._inner = inner
        inner.add_done_callback(self._ended)

    def _ended(self, inner: Any) -> None:
        if inner is self._inner:
            if self._requests is not None:
                self._requests.detach()
            if self._is_cancelled:
                self._finish(asyncio.CancelledError())

    def _finish(self, error: BaseException | None) -> None:
        """Take in that there will be nothing more."""
        if self._is_over:
            return
        self._is_over = True
        self._error = error
        if self._requests is not None:
            self._requests.end()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    # -- responses --------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        response = await self.read()
        if response is EOF:
            raise StopAsyncIteration
        return response

    async def read(self) -> Any:
        """Return the next response; ``grpc.aio.EOF`` if there is none."""
        while True:
            if self._error is not None:
                raise self._error
            if self._is_over:
                return EOF
            response = await self._read()
            if isinstance(response, grpc.RpcError):
                await self._recover(response)
                continue
            if response is EOF:
                self._finish(None)
                return EOF
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
        inner, self._inner = self._inner, None
        inner.cancel()
        self._open(self._resumption.reopen(FailureKind.UNAUTHENTICATED) or [])

    async def _read(self) -> Any:
        """Return a response of the present member, or how its stream failed."""
        task = asyncio.current_task()
        assert task is not None
        cancellations = task.cancelling()
        try:
            if self._opening is not None:
                await asyncio.wait([self._opening])
                self._opening = None
            if self._inner is None:
                raise asyncio.CancelledError
            return await self._inner.read()
        except grpc.RpcError as error:
            return error
        except asyncio.CancelledError:
            if self._lost and not self._is_cancelled and task.cancelling() == cancellations:
                return AsyncMemberLostError(self._lost)
            self.cancel()
            raise

    async def _recover(self, error: grpc.RpcError) -> None:
        """Open the stream on another member, or raise `error`."""
        member, call = self.member, self._call
        kind = FailureKind.INTERRUPTED if self._lost else call.failure_kind(error)
        if isinstance(self._inner, _NotOpened) and kind is not FailureKind.ANSWER:
            kind = FailureKind.UNREACHABLE
        if self._requests is not None:
            self._requests.detach()  # or a request could go to the stream that has failed
        if not self._lost:  # what this client has cut itself says nothing new of the member
            self._channel.stream_failed(call, member, kind)
        first = self._resumption.reopen(kind)
        if kind is FailureKind.UNAUTHENTICATED:
            self._needs_token = True
            first = first if self._channel.authenticates else None
        now = monotonic()
        if self._failing_since is None:
            self._failing_since = now
        give_up = self._failing_since + self._channel.retry_for
        if self._deadline is not None:
            give_up = min(give_up, self._deadline)
        if first is None or now >= give_up:
            self._finish(error)
            raise error
        self._tried = (*self._tried, member)
        if self._channel.were_all(call, self._tried):
            self._tried = ()
            try:
                await asyncio.sleep(self._channel.next_pause(self._pauses))
            except asyncio.CancelledError:
                self.cancel()
                raise
            self._pauses += 1
        if not self._is_over:  # cancelled meanwhile
            self._open(first)

    def follow(self, leader: Endpoint | None, answering: tuple[Endpoint, ...]) -> None:
        """Leave the member if it has stopped answering, or a stream for the leader is not there.

        The connection is cut; whoever reads goes on elsewhere, or gets a `MemberLostError`.
        """
        is_astray = (
            self._call.operation.kind is OperationClass.LEADER_STREAM
            and leader is not None
            and leader != self.member
        )
        if self._is_over or self._lost is not None or self._inner is None:
            return
        if self.member not in answering or is_astray:
            self._lost = self.member
            self._inner.cancel()

    # -- what a plain stream has ------------------------------------------------------------

    def cancel(self) -> bool:
        """End the stream for good; return whether it was open."""
        if self._is_over:
            return False
        self._is_cancelled = True
        if self._opening is not None:
            self._opening.cancel()
        inner = self._inner
        if inner is not None:
            inner.cancel()
        self._finish(asyncio.CancelledError())
        return True

    def cancelled(self) -> bool:
        """Whether it was given up."""
        return self._is_cancelled

    def done(self) -> bool:
        """Whether the reader has seen its end."""
        return self._is_over

    def time_remaining(self) -> float | None:
        """Return the seconds that are left; None if there is no limit."""
        return None if self._deadline is None else max(0.0, self._deadline - monotonic())

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Have `callback` called with this stream when its reader has seen the end, or now."""
        if self._is_over:
            callback(self)
        else:
            self._callbacks.append(callback)

    async def _opened(self) -> Any:
        """Return the call to the present member."""
        if self._opening is not None:
            await asyncio.wait([self._opening])
        if self._inner is None:
            raise asyncio.CancelledError
        return self._inner

    async def wait_for_connection(self) -> None:
        """Wait until the present member has been reached."""
        await (await self._opened()).wait_for_connection()

    async def initial_metadata(self) -> Any:
        """Return what the present member sent first."""
        return await (await self._opened()).initial_metadata()

    async def trailing_metadata(self) -> Any:
        """Return what the last member sent last."""
        return await (await self._opened()).trailing_metadata()

    async def code(self) -> grpc.StatusCode:
        """Return how the stream of the present member ended; waits for that."""
        if self._is_over and isinstance(self._error, grpc.RpcError):
            return self._error.code()
        if self._is_cancelled:
            return grpc.StatusCode.CANCELLED
        return await (await self._opened()).code()

    async def details(self) -> str:
        """Return the details of how it ended; waits for that."""
        if self._is_over and isinstance(self._error, grpc.RpcError):
            return self._error.details() or ""
        return await (await self._opened()).details()


class AsyncRoutedUnaryStreamCall(AsyncRoutedStream, grpc.aio.UnaryStreamCall):
    """A stream of responses to one request."""


class AsyncRoutedStreamStreamCall(AsyncRoutedStream, grpc.aio.StreamStreamCall):
    """A stream of responses to a stream of requests.

    Args:
        channel: the routing channel.
        call: what the caller asked for.
        timeout: seconds in all; None for no end.
        requests: the caller's; None if they come by `write`.
    """

    _requests: AsyncRequests

    def __init__(
        self,
        channel: AsyncRoutingChannel,
        call: Call,
        timeout: float | None,
        requests: AsyncIterable[object] | Iterable[object] | None,
    ) -> None:
        self._source = requests
        super().__init__(channel, call, timeout)

    def _begin(self) -> None:
        self._requests = AsyncRequests(self._resumption.sent)
        self._reader: asyncio.Task[None] | None = None
        if self._source is not None:
            self._reader = self._channel.spawn(self._requests.read(self._source))
        self._open([])

    def _finish(self, error: BaseException | None) -> None:
        super()._finish(error)
        if self._reader is not None:
            self._reader.cancel()

    async def write(self, request: Any) -> None:
        """Send `request`; return when it is on its way, or waits for the next member."""
        self._check_style()
        if self._is_over:
            raise asyncio.InvalidStateError("RPC already finished.")
        if self._requests.has_ended:
            raise asyncio.InvalidStateError('RPC is half closed after calling "done_writing".')
        await self._requests.put(request)

    async def done_writing(self) -> None:
        """Say that there will be no more requests."""
        self._check_style()
        self._requests.end()

    def _check_style(self) -> None:
        if self._source is not None:
            raise grpc.aio.UsageError(
                "The iterator and read/write APIs may not be mixed on a single RPC."
            )


class _NotOpened:
    """Stands for a stream that could not be opened for want of a token."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def read(self) -> Any:
        raise self._error

    async def wait_for_connection(self) -> None:
        raise self._error

    async def initial_metadata(self) -> Any:
        return grpc.aio.Metadata()

    async def trailing_metadata(self) -> Any:
        return grpc.aio.Metadata()

    async def code(self) -> grpc.StatusCode:
        if isinstance(self._error, grpc.RpcError):
            return self._error.code()
        return grpc.StatusCode.UNKNOWN

    async def details(self) -> str:
        return str(self._error)

    def cancel(self) -> bool:
        return False
