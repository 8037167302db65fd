"""A routed call: its first attempt runs as a plain call would, a task does what comes after."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

import grpc.aio

from lb_strategies.consensus import (
    Authenticate,
    Failure,
    FailureKind,
    Reply,
    Send,
    drive_async,
)

from ._call import Call
from ._errors import failure_kind

if TYPE_CHECKING:
    from .aio_channel import AsyncRoutingChannel


class AsyncRoutedCall(grpc.aio.UnaryUnaryCall):
    """What a plain callable returns, with more than one attempt behind it if need be.

    The first attempt begins at once, whether anybody awaits it or not. As long as it succeeds
    there is no task but gRPC's own. What comes after a failure is done for whoever awaits it, or
    has asked for its end in another way.

    Args:
        channel: the routing channel.
        call: what the caller asked for.
        timeout: seconds in all; None for no end.
    """

    # What most calls leave as it is costs nothing here.
    _is_done = True
    """Also before the first attempt."""
    _is_watched = False
    _is_cancelled = False
    _callbacks: Sequence[Callable[[Any], None]] = ()
    _value: Any = None
    _error: BaseException | None = None
    _inner: Any = None
    """The present attempt, or the last one."""
    _rest: asyncio.Task[None] | None = None
    """Makes all attempts but the first, or all if there has to be a token before."""

    def __init__(self, channel: AsyncRoutingChannel, call: Call, timeout: float | None) -> None:
        self._channel = channel
        self._call = call
        self._timeout = timeout
        self._pick, self._inner = channel.start(call, timeout)
        self._is_done = False
        if self._inner is None:
            self._go_on(None)

    def __del__(self) -> None:
        if self._rest is None and not self._is_done:  # nobody asked how it went
            self._channel.failed(self._call, self._pick, FailureKind.CANCELLED)

    # -- the attempts -----------------------------------------------------------------------

    def _watch(self) -> None:
        """See to it that the end of the first attempt is noticed, though nobody awaits it."""
        if self._rest is None and not (self._is_done or self._is_watched):
            self._is_watched = True
            self._inner.add_done_callback(self._answered)

    def _answered(self, inner: Any) -> None:
        """Take in the end of the first attempt."""
        if self._is_done or self._rest is not None:
            return
        code = _at_once(inner.code())
        if code is grpc.StatusCode.OK:
            self._channel.succeeded(self._call, self._pick)
            self._end()
            return
        details, leader = _at_once(inner.details()), self._call.asks_for_leader
        if failure_kind(code, details, hasleader_sent=leader) is FailureKind.CANCELLED:
            self._is_cancelled = True
            self._fail(asyncio.CancelledError(), FailureKind.CANCELLED)
        else:
            self._go_on(inner)

    def _fail(self, error: BaseException, kind: FailureKind) -> None:
        """End it with an `error` after which there is nothing to try."""
        if not self._is_done:
            self._channel.failed(self._call, self._pick, kind)
            self._error = error
            self._end()

    def _go_on(self, begun: Any | None) -> None:
        """Have a task make all attempts that are left; the first one may have `begun`."""
        self._rest = rest = self._channel.spawn(self._try(begun))
        rest.add_done_callback(self._ended)

    def _ended(self, rest: asyncio.Task[None]) -> None:
        """Take in the end of the task, which may have been cancelled before it began."""
        if not self._is_done:
            self._is_cancelled = True
            self._fail(asyncio.CancelledError(), FailureKind.CANCELLED)

    async def _try(self, begun: Any | None) -> None:

        async def send(step: Send) -> Reply[Any] | Failure:
            nonlocal begun
            try:
                if begun is None:
                    begun = await self._begin(step)
                inner, begun = begun, None
                value = await inner
            except Exception as error:
                return Failure(error, self._call.failure_kind(error), perf_counter())
            term, leader = self._channel.term_of(value)
            return Reply(value, perf_counter(), term, leader)

        async def authenticate(step: Authenticate) -> None:
            await self._channel.authenticate(str(step.endpoint), step.timeout)

        plan = self._channel.plan(self._call, self._timeout, first=self._pick)
        try:
            self._value = await drive_async(plan, send, authenticate, clock=perf_counter)
        except asyncio.CancelledError as error:
            self._is_cancelled = True
            self._error = error
            raise
        except Exception as error:
            self._error = error  # raised to whoever awaits it
        finally:
            self._end()

    async def _begin(self, step: Send) -> Any:
        member = str(step.endpoint)
        await self._channel.prepare(member, step.timeout)
        self._inner = self._channel.begin(self._call, member, step.timeout)
        return self._inner

    def _end(self) -> None:
        self._is_done = True
        callbacks, self._callbacks = self._callbacks, ()
        for callback in callbacks:
            callback(self)

    def __await__(self) -> Generator[Any, None, Any]:
        if self._rest is None:
            try:
                response = yield from self._inner.__await__()
            except asyncio.CancelledError as error:
                self._inner.cancel()
                self._is_cancelled = True
                self._fail(error, FailureKind.CANCELLED)
                raise
            except grpc.RpcError:
                if self._rest is None:
                    self._go_on(self._inner)
            except Exception as error:  # it was never sent, such as for want of a serializer
                self._fail(error, self._call.failure_kind(error))
                raise
            else:
                if not self._is_done:
                    self._channel.succeeded(self._call, self._pick, response)
                    self._is_done = True
                    if self._callbacks:
                        self._end()
                return response
        assert self._rest is not None
        yield from self._rest.__await__()
        if self._error is not None:
            raise self._error
        return self._value

    async def _wait(self) -> None:
        """Wait for the end, without a say in it."""
        self._watch()
        while not self._is_done:
            if self._rest is None:
                await self._inner.code()
            else:
                await asyncio.wait([self._rest])

    # -- grpc.aio.Call ----------------------------------------------------------------------

    def cancel(self) -> bool:
        """Give up; return whether there was something to give up."""
        if self._is_done:
            return False
        self._is_cancelled = True
        if self._rest is None:
            self._inner.cancel()
            self._fail(asyncio.CancelledError(), FailureKind.CANCELLED)
        else:
            self._rest.cancel()
        return True

    def cancelled(self) -> bool:
        """Whether it was given up."""
        return self._is_done and self._is_cancelled

    def done(self) -> bool:
        """Whether there is a result."""
        if self._rest is None and not self._is_done and self._inner.done():
            self._answered(self._inner)
        return self._is_done

    def time_remaining(self) -> float | None:
        """Return the seconds that are left; None if there is no limit."""
        if self._timeout is None:
            return None
        return max(0.0, self._pick.started_at + self._timeout - perf_counter())

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Have `callback` called with this call at its end, or now."""
        if self._is_done:
            callback(self)
        else:
            self._callbacks = (*self._callbacks, callback)
            self._watch()

    async def wait_for_connection(self) -> None:
        """Wait for the end; raise what awaiting it raises."""
        await self._wait()
        if self._error is not None:
            raise self._error

    async def initial_metadata(self) -> Any:
        """Return what the last member asked sent first; waits for the end."""
        await self._wait()
        return grpc.aio.Metadata() if self._inner is None else await self._inner.initial_metadata()

    async def trailing_metadata(self) -> Any:
        """Return what the last member asked sent last; waits for the end."""
        await self._wait()
        return grpc.aio.Metadata() if self._inner is None else await self._inner.trailing_metadata()

    async def code(self) -> grpc.StatusCode:
        """Return how it ended; waits for that."""
        await self._wait()
        if isinstance(self._error, grpc.RpcError):
            return self._error.code()
        return grpc.StatusCode.CANCELLED if self._is_cancelled else grpc.StatusCode.OK

    async def details(self) -> str:
        """Return the details of how it ended; waits for that."""
        await self._wait()
        if isinstance(self._error, grpc.RpcError):
            return self._error.details() or ""
        return "" if self._inner is None else await self._inner.details()


def _at_once(result: Coroutine[Any, Any, Any]) -> Any:
    """Return what a finished RPC tells without waiting."""
    try:
        result.send(None)
    except StopIteration as stop:
        return stop.value
    result.close()
    raise RuntimeError("a call whose end was announced has no status")
