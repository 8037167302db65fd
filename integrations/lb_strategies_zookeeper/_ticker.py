"""Time-outs of many requests by one thread, which sleeps while there is none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from lb_strategies.forks import renew_after_fork

_TICK: Final = 0.02
"""Seconds that a call may be late."""


class Ticker:
    """Calls functions at given times, a little late."""

    def __init__(self) -> None:
        self._after_fork_in_child()
        renew_after_fork(self)

    def _after_fork_in_child(self) -> None:
        self._due: dict[Callable[[], None], float] = {}
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_stopped = False

    def call_at(self, when: float, function: Callable[[], None]) -> None:
        """Call `function`, which must not wait nor raise, when ``perf_counter()`` is `when`.

        After `stop` that is at once.
        """
        self._due[function] = when
        if not self._wake.is_set():
            self._wake.set()
        if self._thread is None:
            self._run_thread()

    def forget(self, function: Callable[[], None]) -> None:
        """Do not call `function`."""
        self._due.pop(function, None)

    def start(self) -> None:
        """Wait again for the time of what comes after `stop`."""
        self._is_stopped = False

    def stop(self) -> None:
        """End the thread, and call all that is left."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._is_stopped = True
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(2.0)
        self._call(float("inf"))

    def _run_thread(self) -> None:
        with self._lock:
            if self._thread is None and not self._is_stopped:
                self._thread = threading.Thread(target=self._run, name="lb-ticker", daemon=True)
                self._thread.start()
        if self._is_stopped:
            self._call(float("inf"))

    def _run(self) -> None:
        this = threading.current_thread()
        while self._thread is this:
            self._wake.wait()
            self._wake.clear()  # before the look, or the last call would be missed
            while self._due and self._thread is this:
                time.sleep(_TICK)
                self._call(time.perf_counter())

    def _call(self, now: float) -> None:
        for function, when in list(self._due.items()):
            if when <= now and self._due.pop(function, None) is not None:
                function()
