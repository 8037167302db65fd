"""Timers that are right to some tens of microseconds.

asyncio's epoll selector and uvloop both round a timer to whole milliseconds, several times the
answer time of a Redis on loopback; a delay of 8 +- 2 ms through them is neither.
"""

from __future__ import annotations

import asyncio
import ctypes
import heapq
import os
import sys
import time
from collections.abc import Callable
from itertools import count

PR_SET_TIMERSLACK = 29
CLOCK_MONOTONIC = 1
TFD_NONBLOCK = 0o4000
TFD_TIMER_ABSTIME = 1


def wake_precisely() -> None:
    """Ask the kernel to end this thread's sleeps on time, not up to 50 microseconds late."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)


class _TimerSpec(ctypes.Structure):
    """Linux's ``struct itimerspec``: an interval, which we leave at zero, and an expiry."""

    _fields_ = [(name, ctypes.c_long) for name in ("every_s", "every_ns", "at_s", "at_ns")]


class Alarm:
    """Calls back at a time of ``time.monotonic``, in order, on a running event loop.

    Where there is no timerfd (not Linux) it uses the loop's own timers.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()
        self._libc = ctypes.CDLL(None) if sys.platform == "linux" else None
        if self._libc is not None:
            self._fd = int(self._libc.timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK))
            loop.add_reader(self._fd, self._ring)

    def at(self, when: float, callback: Callable[[], None]) -> None:
        """Call ``callback`` at ``when``, in seconds of ``time.monotonic``; never early."""
        heapq.heappush(self._due, (when, next(self._number), callback))
        if self._due[0][0] == when:
            self._arm()

    def _arm(self) -> None:
        when = self._due[0][0]
        if self._libc is None:
            self._loop.call_later(max(0.0, when - time.monotonic()), self._wake)
            return
        # An expiry of zero would disarm it, hence the nanosecond more, which also rounds up.
        seconds, nanoseconds = divmod(int(when * 1e9) + 1, 1_000_000_000)
        spec = _TimerSpec(0, 0, seconds, nanoseconds)
        self._libc.timerfd_settime(self._fd, TFD_TIMER_ABSTIME, ctypes.byref(spec), None)

    def _ring(self) -> None:
        os.read(self._fd, 8)
        self._wake()

    def _wake(self) -> None:
        now = time.monotonic()
        while self._due and self._due[0][0] <= now:
            heapq.heappop(self._due)[2]()
        if self._due:
            self._arm()
