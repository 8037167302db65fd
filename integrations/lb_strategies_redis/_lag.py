"""Was it the node that was slow, or this event loop?"""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter
from typing import Final

_TICK: Final = 0.020  # seconds between two looks; only while requests are in flight
_TOLERANCE: Final = 0.005  # lateness that a timer's millisecond and a busy loop explain
_REMEMBERED: Final = 16  # stalls; nothing is in flight across more
INFINITY: Final = float("inf")


class LoopLag:
    """Notices stalls of one event loop: a blocking call in one task delays every other.

    A stall of 200 ms makes every node in flight look 200 ms slow. While there are requests a
    timer ticks; what it is late by was a stall.

    Whoever sends a request calls `watch`, or on a hot path does what it does.
    """

    def __init__(self) -> None:
        self.is_idle = True
        """Whether the timer does not run."""
        self.has_requests = False
        self.stalled_at = -INFINITY
        """When the last stall ended, in seconds."""
        self.overdue_at = INFINITY
        """When the next tick is so late that it is a stall; infinity while there is none."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stalls: deque[tuple[float, float]] = deque(maxlen=_REMEMBERED)

    def watch(self) -> None:
        """Note that a request is being sent."""
        self.has_requests = True
        if self.is_idle:
            self.start()

    def start(self) -> None:
        """Start the timer on the running loop."""
        self._loop = asyncio.get_running_loop()
        self.is_idle = self.has_requests = False
        self.overdue_at = perf_counter() + _TICK + _TOLERANCE
        self._loop.call_later(_TICK, self._tick)

    def _is_current(self) -> bool:
        """Whether the timer runs on the running loop; if that is another one, it does now."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # a task that was thrown away together with its loop
            return False
        if loop is not self._loop:
            self.start()  # the loop that the timer ran on has ended
            return False
        return True

    def _tick(self) -> None:
        now = perf_counter()
        if now > self.overdue_at:
            self._stalls.append((self.overdue_at - _TOLERANCE, now))
            self.stalled_at = now
        self.is_idle = True
        self.overdue_at = INFINITY
        if self.has_requests:
            self.start()

    def explains(self, start: float, end: float) -> bool:
        """Whether stalls make up half or more of the time between two instants."""
        if self.stalled_at < start and end <= self.overdue_at:
            return False  # as nearly always
        if not self._is_current():
            return False
        stalled = sum(
            max(0.0, min(end, until) - max(start, since)) for since, until in self._stalls
        )
        if end > self.overdue_at:
            stalled += end - max(start, self.overdue_at - _TOLERANCE)  # one is going on
        return stalled >= 0.5 * (end - start)
