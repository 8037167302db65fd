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
        self.has_requests = False
        self.expected_at = INFINITY
        """When the timer should tick next, in seconds; infinity while it does not run."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stalled_at = -INFINITY  # when the last stall ended
        self._stalls: deque[tuple[float, float]] = deque(maxlen=_REMEMBERED)

    def watch(self) -> None:
        """Note that a request is being sent."""
        self.has_requests = True
        if self.expected_at == INFINITY:
            self.start()

    def start(self) -> None:
        """Start the timer on the running loop."""
        self._loop = asyncio.get_running_loop()
        self.has_requests = False
        self.expected_at = perf_counter() + _TICK
        self._loop.call_later(_TICK, self._tick)

    def _tick(self) -> None:
        now = perf_counter()
        if now - self.expected_at > _TOLERANCE:
            self._stalls.append((self.expected_at, now))
            self._stalled_at = now
        self.expected_at = INFINITY
        if self.has_requests:
            self.start()

    def explains(self, start: float, end: float) -> bool:
        """Whether stalls make up half or more of the time between two instants."""
        if self._stalled_at < start and end - self.expected_at <= _TOLERANCE:
            return False  # as nearly always
        if asyncio.get_running_loop() is not self._loop:
            self.start()  # the loop that the timer ran on has ended
            return False
        stalled = sum(
            max(0.0, min(end, until) - max(start, since)) for since, until in self._stalls
        )
        if end > self.expected_at:
            stalled += end - max(start, self.expected_at)  # the tick itself is overdue
        return stalled >= 0.5 * (end - start)
