"""Holding requests back, so that they need not fail."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from time import perf_counter
from typing import Any, Final
from weakref import ref

_PATIENCE: Final = 0.15
"""Seconds without an answer after which a server seems to hang, at least."""
_FIRST_PATIENCE: Final = 1.0
"""... as long as it has answered nothing."""


class Patience:
    """How long to wait for an answer: as TCP does before it sends again (RFC 6298, section 2)."""

    def __init__(self) -> None:
        self._mean: float | None = None
        self._deviation = 0.0
        self.limit = _FIRST_PATIENCE
        """In seconds."""

    def learn(self, elapsed: float) -> None:
        """Take in that an answer has taken `elapsed` seconds."""
        if self._mean is None:
            self._mean, self._deviation = elapsed, elapsed / 2.0
        else:
            self._deviation += (abs(elapsed - self._mean) - self._deviation) / 4.0
            self._mean += (elapsed - self._mean) / 8.0
        self.limit = max(_PATIENCE, self._mean + 4.0 * self._deviation)


def _spawn(function: Callable[[], None]) -> None:
    threading.Thread(target=function, name="lb-gate", daemon=True).start()


class Gate:
    """Stands before kazoo's queue of requests, and can hold them back, in their order.

    It does so while it is closed, and while the server seems to hang: a session's requests are
    answered in their order, so a further one would not be answered earlier for being sent, and
    what was not sent need not fail when the server is left.

    Args:
        call: kazoo's, which queues a request.
        is_idle: tells whether no request is on its way.
        clock: monotonic seconds.
        spawn: calls a function in another thread.
    """

    def __init__(
        self,
        call: Callable[[Any, Any], Any],
        is_idle: Callable[[], bool],
        clock: Callable[[], float] = perf_counter,
        spawn: Callable[[Callable[[], None]], None] = _spawn,
    ) -> None:
        self._call = call
        self._is_idle = is_idle
        self._clock = clock
        self._spawn = spawn
        self._lock = threading.RLock()
        self._held: deque[tuple[Any, Any]] = deque()
        self._is_closed = False
        self._seems_hung = False
        self._is_resuming = False
        self._answers = 0
        self._since = clock()
        """When the last answer came, or the first request after it was sent."""
        self._patience = Patience()
        self._last: ContextVar[ref[Any] | None] = ContextVar("last request", default=None)
        self._abandoned: set[Any] = set()

    def __call__(self, request: Any, result: Any) -> Any:
        """Queue a request, now or when the gate is opened."""
        if result is not None:
            self._last.set(ref(result))
        with self._lock:
            if not self._is_closed and self._is_answering():
                return self._call(request, result)
            self._held.append((request, result))
            return None

    def _is_answering(self) -> bool:
        """Whether the server answers as it does, or has nothing to answer."""
        now, answers = self._clock(), self._answers
        if self._is_idle():
            self._since = now
            if self._seems_hung:
                self._resume()
        elif now - self._since > self._patience.limit:
            self._seems_hung = True
            if answers != self._answers:
                self._seems_hung = False  # an answer came just now, and did not see this
        return not self._seems_hung

    # Neither of these may wait, not even for the lock: it is the connection's thread that calls
    # them, and who has the lock may be waiting for that thread to take requests out of kazoo's
    # queue, which wakes it up through a socket of limited size.

    def answered(self) -> None:
        """Take in that the server has answered something."""
        self._patience.learn(self._clock() - self._since)
        self.connected()

    def connected(self) -> None:
        """Take in that it is another connection now, or none any more."""
        self._since = self._clock()
        self._answers += 1  # before the look
        if self._seems_hung and not self._is_resuming:
            self._is_resuming = True
            self._spawn(self._resume)

    def _resume(self) -> None:
        with self._lock:
            self._is_resuming = False
            self._seems_hung = False
            self._release()

    @property
    def is_awaited(self) -> bool:
        """Whether the calling thread or task has asked for something that is not answered yet.

        What has been abandoned was asked for by everybody.
        """
        if self._abandoned:
            self._abandoned = {result for result in self._abandoned if not result.ready()}
            if self._abandoned:
                return True
        last = self._last.get()
        result = None if last is None else last()
        return result is not None and not result.ready()

    def abandon(self, result: Any) -> None:
        """Take in that the task that asked for `result` was cancelled, and others go on for it."""
        if not result.ready():
            self._abandoned = {*self._abandoned, result}

    def close(self) -> None:
        """Hold back all requests from now on."""
        with self._lock:
            self._is_closed = True

    def open(self) -> None:
        """Let through those that were held back, and all that follow."""
        with self._lock:
            self._is_closed = False
            self._release()

    def _release(self) -> None:
        while self._held and not self._is_closed and not self._seems_hung:
            self._call(*self._held.popleft())
