"""The future of a routed call: the plan goes on in the callbacks of the members' own futures."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

import grpc

from lb_strategies.consensus import (
    Authenticate,
    Done,
    Failure,
    FailureKind,
    Reply,
    Send,
    Sleep,
)

from ._call import Call

if TYPE_CHECKING:
    from .channel import RoutingChannel


class RoutedFuture(grpc.Future, grpc.Call):
    """What a plain ``future()`` returns, with more than one attempt behind it.

    Args:
        channel: the routing channel.
        call: what the caller asked for.
        timeout: seconds in all; None for no end.
    """

    def __init__(self, channel: RoutingChannel, call: Call, timeout: float | None) -> None:
        self._channel = channel
        self._call = call
        self._deadline = None if timeout is None else perf_counter() + timeout
        self._plan = channel.plan(call, timeout)
        self._changed = threading.Condition()
        self._callbacks: list[Callable[[RoutedFuture], Any]] = []
        self._is_done = False
        self._is_cancelled = False
        self._inner: Any = None
        self._value: Any = None
        self._error: BaseException | None = None
        self._go(lambda: next(self._plan))

    # -- the plan ---------------------------------------------------------------------------

    def _go(self, advance: Callable[[], Any]) -> None:
        """Take the next step of the plan."""
        try:
            step = advance()
        except StopIteration as stop:
            self._finish(stop.value[0], None)
            return
        except BaseException as error:
            self._finish(None, error)
            return
        if isinstance(step, Send):
            self._send(step)
        elif isinstance(step, Sleep):
            timer = threading.Timer(step.seconds, self._tell, (Done(perf_counter()),))
            timer.daemon = True
            timer.start()
        else:
            threading.Thread(target=self._authenticate, args=(step,), daemon=True).start()

    def _tell(self, event: Reply[Any] | Failure | Done) -> None:
        self._go(lambda: self._plan.send(event))

    def _send(self, step: Send) -> None:
        try:
            inner = self._channel.begin(self._call, str(step.endpoint), step.timeout)
        except Exception as error:
            self._tell(Failure(error, self._call.failure_kind(error), perf_counter()))
            return
        with self._changed:
            self._inner = inner
            if self._is_cancelled:
                inner.cancel()
        inner.add_done_callback(self._answered)

    def _answered(self, inner: Any) -> None:
        now = perf_counter()
        try:
            response = inner.result()
        except grpc.FutureCancelledError as error:
            self._tell(Failure(error, FailureKind.CANCELLED, now))
        except Exception as error:
            self._tell(Failure(error, self._call.failure_kind(error), now))
        else:
            term, leader = self._channel.term_of(response)
            self._tell(Reply((response, None), now, term, leader))

    def _authenticate(self, step: Authenticate) -> None:
        try:
            self._channel.authenticate(str(step.endpoint), step.timeout)
        except Exception as error:
            self._tell(Failure(error, FailureKind.ANSWER, perf_counter()))
        else:
            self._tell(Done(perf_counter()))

    def _finish(self, value: Any, error: BaseException | None) -> None:
        with self._changed:
            self._value, self._error = value, error
            self._is_done = True
            callbacks, self._callbacks = self._callbacks, []
            self._changed.notify_all()
        for callback in callbacks:
            callback(self)

    # -- grpc.Future ------------------------------------------------------------------------

    def cancel(self) -> bool:
        """Give up; return whether there was something to give up."""
        with self._changed:
            if self._is_done:
                return False
            self._is_cancelled = True
            inner = self._inner
        if inner is not None:
            inner.cancel()
        return True

    def cancelled(self) -> bool:
        """Whether it was given up."""
        return self._is_cancelled and isinstance(self._error, grpc.FutureCancelledError)

    def running(self) -> bool:
        """Whether there is no result yet."""
        return not self._is_done

    def done(self) -> bool:
        """Whether there is a result."""
        return self._is_done

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the response and return it.

        Args:
            timeout: seconds; None to wait without end.

        Raises:
            grpc.FutureTimeoutError: it took longer.
            grpc.FutureCancelledError: it was given up.
            grpc.RpcError: it failed.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end and return the error, if there was one."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_done, timeout):
                raise grpc.FutureTimeoutError()
        return self._error

    def traceback(self, timeout: float | None = None) -> Any:
        """Wait for the end and return the error's traceback, if there was one."""
        error = self.exception(timeout)
        return None if error is None else error.__traceback__

    def add_done_callback(self, fn: Callable[[Any], Any]) -> None:
        """Have `fn` called with this future at its end, or now."""
        with self._changed:
            if not self._is_done:
                self._callbacks.append(fn)
                return
        fn(self)

    # -- grpc.Call --------------------------------------------------------------------------

    def is_active(self) -> bool:
        """Whether there is no result yet."""
        return not self._is_done

    def time_remaining(self) -> float | None:
        """Return the seconds that are left; None if there is no limit."""
        return None if self._deadline is None else max(0.0, self._deadline - perf_counter())

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Have `callback` called at the end; return False if that was before."""
        with self._changed:
            if self._is_done:
                return False
            self._callbacks.append(lambda _: callback())
        return True

    def initial_metadata(self) -> Any:
        """Return what the last member asked sent first; waits for the end."""
        self._wait()
        return self._inner.initial_metadata()

    def trailing_metadata(self) -> Any:
        """Return what the last member asked sent last; waits for the end."""
        self._wait()
        return self._inner.trailing_metadata()

    def code(self) -> grpc.StatusCode:
        """Return the status of the last attempt; waits for the end."""
        self._wait()
        code: grpc.StatusCode = self._inner.code()
        return code

    def details(self) -> str:
        """Return the details of the last attempt; waits for the end."""
        self._wait()
        details: str = self._inner.details()
        return details

    def _wait(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_done)
