"""The result of a routed read: its plan goes on in the callbacks of the sessions' own results."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

from kazoo.handlers.threading import AsyncResult, KazooTimeoutError

from lb_strategies.consensus import Done, Failure, FailureKind, Reply, Send, Sleep

from ._reads import Answer, Read, Sending

if TYPE_CHECKING:
    from ._routing import Routing

Event = Reply[Answer] | Failure | Done


class RoutedRead:
    """Does a read as its plan says, and sets `result` at the end; nobody waits for it.

    Args:
        routing: knows the sessions.
        read: what to read.
        result: of kazoo's client; gets the value or the error.
    """

    def __init__(self, routing: Routing, read: Read, result: AsyncResult) -> None:
        self._routing = routing
        self._read = read
        self._result = result
        self._plan = routing.plan(read)
        self._lock = threading.Lock()
        self._waiting: Callable[[], None] | None = None
        """What happens if nothing else does; taken by who goes on with the plan."""
        self._advance(None)

    def _advance(self, event: Event | None) -> None:
        """Do the steps of the plan, up to one that takes its time."""
        while True:
            try:
                step = self._plan.send(event)  # type: ignore[arg-type]
            except StopIteration as stop:
                self._result.set(self._read.method.finish(stop.value.value))
                return
            except BaseException as error:
                self._result.set_exception(error)
                return
            if isinstance(step, Send):
                event = self._send(step)
            else:
                assert isinstance(step, Sleep)  # ZooKeeper's sessions need no tokens
                self._wait(lambda: Done(perf_counter()), step.seconds)
                event = None
            if event is None:
                return

    def _wait(self, default: Callable[[], Event], seconds: float | None) -> Callable[[], None]:
        """Go on with what `default` returns after so many seconds, unless `_take` is first."""

        def expire() -> None:
            if self._take(expire):
                self._advance(default())

        self._waiting = expire
        if seconds is not None:
            self._routing.ticker.call_at(perf_counter() + seconds, expire)
        return expire

    def _take(self, waiting: Callable[[], None]) -> bool:
        """Return whether the caller goes on with the plan, and nobody did so before."""
        with self._lock:
            if self._waiting is not waiting:
                return False
            self._waiting = None
        self._routing.ticker.forget(waiting)
        return True

    def _send(self, step: Send) -> Failure | None:
        read = self._read
        member = step.endpoint

        def give_up() -> Failure:
            error = KazooTimeoutError(f"{member} took too long")
            return Failure(error, FailureKind.TIMED_OUT, perf_counter())

        waiting = self._wait(give_up, step.timeout)

        def send(*, syncs: bool) -> None:
            sending = Sending(self._routing.session(member), read, syncs=syncs)
            sending.result.rawlink(lambda _: answered(sending))

        def answered(sending: Sending) -> None:
            try:
                if sending.is_behind(read) and not sending.has_synced:
                    send(syncs=True)
                    return
                answer = self._routing.answer(sending, read)
            except Exception as error:
                failed(error)
            else:
                if self._take(waiting):
                    self._advance(Reply(answer, perf_counter(), answer.zxid >> 32))

        def failed(error: Exception) -> None:
            if self._take(waiting):
                self._advance(Failure(error, self._routing.failure_kind(error), perf_counter()))

        try:
            send(syncs=read.syncs)
        except Exception as error:
            if self._take(waiting):
                return Failure(error, self._routing.failure_kind(error), perf_counter())
        return None
