"""Asking the members for their status, in the background: a thread or a task for each member.

One for each, because a member that is paused makes only its own poll wait.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from threading import get_ident
from typing import Final
from weakref import WeakMethod

from ..forks import renew_after_fork
from ..membership import Endpoint
from .options import ConsensusOptions

_LEAST_GAP: Final = 0.02
"""Seconds between two polls of a member, however often a refresh is asked for."""


class PollThreads:
    """Calls `poll` for every member again and again, each in a thread of its own.

    Args:
        poll: a bound method that asks one member and never raises. Its object is not kept alive:
            the threads end when it is gone.
        options: interval and jitter.
        rng: for the jitter.
    """

    def __init__(
        self, poll: Callable[[Endpoint], None], options: ConsensusOptions, rng: random.Random
    ) -> None:
        self._poll = WeakMethod(poll)
        self._options = options
        self._rng = rng
        self._after_fork_in_child()
        renew_after_fork(self)

    def _after_fork_in_child(self) -> None:
        """Start without threads: a fork takes none along."""
        self._lock = threading.Lock()
        self._threads: dict[Endpoint, tuple[threading.Thread, threading.Event]] = {}
        self.is_running = False
        """Whether anybody is polled; not in a forked child, before it says so itself."""

    def watch(self, members: Iterable[Endpoint]) -> None:
        """Poll exactly `members` from now on, nobody if there are none."""
        wanted = tuple(members)
        with self._lock:
            gone = [self._threads.pop(m) for m in tuple(self._threads) if m not in wanted]
            for member in wanted:
                if member not in self._threads:
                    wake = threading.Event()
                    thread = threading.Thread(
                        target=self._run, args=(member, wake), name=f"lb-poll {member}", daemon=True
                    )
                    self._threads[member] = thread, wake
                    thread.start()
            self.is_running = bool(wanted)
        for _, wake in gone:
            wake.set()
        for thread, _ in gone:
            if thread is not threading.current_thread():
                thread.join(2.0 * self._options.poll_timeout)

    def refresh(self) -> None:
        """Poll now; does not wait."""
        for _, wake in list(self._threads.values()):
            wake.set()

    def _run(self, member: Endpoint, wake: threading.Event) -> None:
        while True:
            wake.clear()  # before the look, or the last call would be missed
            if not self._is_watched(wake):
                return
            started = time.monotonic()
            poll = self._poll()
            if poll is None:
                return
            poll(member)
            del poll
            if wake.wait(_interval(self._options, self._rng)) and self._is_watched(wake):
                time.sleep(max(0.0, started + _LEAST_GAP - time.monotonic()))

    def _is_watched(self, wake: threading.Event) -> bool:
        return any(wake is known for _, known in list(self._threads.values()))


class PollTasks:
    """The same with tasks of one event loop; a new loop gets new ones.

    Args:
        poll: a bound coroutine method; otherwise as for `PollThreads`.
        options: interval and jitter.
        rng: for the jitter.
    """

    def __init__(
        self,
        poll: Callable[[Endpoint], Awaitable[None]],
        options: ConsensusOptions,
        rng: random.Random,
    ) -> None:
        self._poll = WeakMethod(poll)
        self._options = options
        self._rng = rng
        self._after_fork_in_child()
        renew_after_fork(self)

    def _after_fork_in_child(self) -> None:
        """Start without tasks: the parent's loop runs only there."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._tasks: dict[Endpoint, tuple[asyncio.Task[None], asyncio.Event]] = {}

    @property
    def is_running(self) -> bool:
        """Whether anybody is polled in the running loop."""
        # Every request asks, and `asyncio.get_running_loop` makes a system call (getpid).
        loop = self._loop
        return loop is not None and self._thread == get_ident() and loop.is_running()

    def watch(self, members: Iterable[Endpoint]) -> None:
        """Poll exactly `members` from now on, in the running loop."""
        wanted = tuple(members)
        if not self.is_running:
            self._tasks = {}  # another loop's are out of reach, and end when they wake up
            self._loop, self._thread = asyncio.get_running_loop(), get_ident()
        for member in tuple(self._tasks):
            if member not in wanted:
                task, _ = self._tasks.pop(member)
                task.cancel()
        for member in wanted:
            if member not in self._tasks:
                wake = asyncio.Event()
                task = asyncio.create_task(self._run(member, wake), name=f"lb-poll {member}")
                self._tasks[member] = task, wake

    async def stop(self) -> None:
        """End every task and wait for it."""
        tasks = [task for task, _ in self._tasks.values()] if self.is_running else []
        self._tasks = {}
        self._loop = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def refresh(self) -> None:
        """Poll now; does not wait."""
        for _, wake in self._tasks.values():
            wake.set()

    async def _run(self, member: Endpoint, wake: asyncio.Event) -> None:
        while True:
            wake.clear()
            if not self._is_watched(wake):
                return
            started = time.monotonic()
            poll = self._poll()
            if poll is None:
                return
            await poll(member)
            del poll
            try:
                async with asyncio.timeout(_interval(self._options, self._rng)):
                    await wake.wait()
            except TimeoutError:
                pass
            await asyncio.sleep(max(0.0, started + _LEAST_GAP - time.monotonic()))

    def _is_watched(self, wake: asyncio.Event) -> bool:
        return any(wake is known for _, known in self._tasks.values())


def _interval(options: ConsensusOptions, rng: random.Random) -> float:
    return options.poll_interval * (1.0 + options.poll_jitter * (2.0 * rng.random() - 1.0))
