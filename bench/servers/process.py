"""Child processes that never outlive us, and free ports for them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1
# The "nice" value of what is measured; below 0 only root may go.
PRECEDENCE = -15
# Below the ports that Linux gives to outgoing connections (32768 - 60999), so that no connection
# of ours can take the port of a server that is about to restart.
PORTS = range(20000, 32000)
# Ports that a real service of the same machine would use by default: Sentinel.
DEFAULT_PORTS = frozenset({26379})


class Process:
    """One child process, with its output in a log file.

    Use ``stop`` in a ``finally`` or an ``ExitStack``; when we die without reaching it, the kernel
    kills the child (Linux; the signal follows the *thread* that started it, so start servers from
    a thread that lives as long as they should).
    """

    def __init__(
        self, command: Sequence[str | Path], *, log: Path, cpus: Collection[int] | None = None
    ) -> None:
        self.log = log
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=log.parent,
                preexec_fn=prepare_child(cpus),
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._popen.pid

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended yet; a paused one is running."""
        return self._popen.poll() is None

    def pause(self) -> None:
        """Freeze the process: its connections stay open and nothing answers.

        Returns when every thread has stopped; the kernel tells them one after the other.
        """
        self._signal(signal.SIGSTOP)
        deadline = time.monotonic() + 5.0
        while self._popen.poll() is None and not self._has_stopped():
            if time.monotonic() > deadline:
                raise RuntimeError(f"process {self._popen.pid} does not stop")
            time.sleep(0.0005)

    def _has_stopped(self) -> bool:
        """Whether all threads have stopped, or there are none any more."""
        options = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        try:
            return os.waitid(os.P_PID, self._popen.pid, options) is not None
        except ChildProcessError:
            return True

    def resume(self) -> None:
        """Undo ``pause``."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the process at once, also a paused one. Idempotent."""
        self._signal(signal.SIGKILL)
        self._popen.wait(timeout=10)

    def terminate(self, timeout: float = 10.0) -> None:
        """Ask the process to end (SIGTERM); kill it after ``timeout`` seconds. Idempotent."""
        self._signal(signal.SIGTERM)
        try:
            self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()

    def log_tail(self, lines: int = 15) -> str:
        """Return the last lines of the log, for an error message."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _signal(self, number: signal.Signals) -> None:
        if self.is_running:
            self._popen.send_signal(number)


def prepare_child(cpus: Collection[int] | None = None) -> Callable[[], None]:
    """Return a ``preexec_fn``: the child dies with us, ignores Ctrl-C and stays on ``cpus``.

    Ctrl-C goes to the whole foreground group; a server that ended on its own would turn our
    orderly shutdown into a race, so only we act on it.
    """
    parent = os.getpid()
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None

    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if libc is not None:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)
        if cpus:
            os.sched_setaffinity(0, cpus)

    return prepare


@contextlib.contextmanager
def taking_precedence() -> Iterator[None]:
    """Run this thread, and what it starts, before other work of the machine, if we may.

    Without it a neighbour that computes on the same CPU puts its time slice, 4 ms, into every
    percentile. Linux compares nice values only within a session where it groups processes by
    session ("autogroup"), so the session's own value is set too.
    """
    before = os.getpriority(os.PRIO_PROCESS, 0)
    _be_nice(PRECEDENCE)
    try:
        yield
    finally:
        _be_nice(before)


def _be_nice(value: int) -> None:
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, value)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(value))


def split_cpus() -> tuple[frozenset[int], frozenset[int]]:
    """Return the CPUs of the client and those of the servers; empty sets where unsupported."""
    if not hasattr(os, "sched_getaffinity"):
        return frozenset(), frozenset()
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        return frozenset(cpus), frozenset(cpus)
    return frozenset(cpus[:1]), frozenset(cpus[1:])


@contextlib.contextmanager
def running_on(cpus: Collection[int]) -> Iterator[None]:
    """Keep this thread, and those that it starts, on these CPUs; on all if there are none."""
    if not cpus:
        yield
        return
    previous = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, previous)


@contextlib.contextmanager
def terminating() -> Iterator[None]:
    """Turn SIGTERM into ``KeyboardInterrupt`` inside, so that ``kill`` also stops the servers."""

    def interrupt(number: int, _frame: object) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def wait_until(condition: Callable[[], bool], what: str, *, timeout: float = 15.0) -> None:
    """Poll ``condition`` every 20 ms; ``RuntimeError`` after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not so within {timeout:g} s: {what}")
        time.sleep(0.02)


def free_ports(count: int) -> list[int]:
    """Return ``count`` distinct loopback ports that nothing listens on now."""
    chosen: list[int] = []
    # Unpredictable on purpose: two runs at once must not try the same ports.
    order = random.SystemRandom().sample(PORTS, k=min(len(PORTS), 50 * count))
    for port in order:
        if len(chosen) == count:
            break
        if port not in DEFAULT_PORTS and is_free(port):
            chosen.append(port)
    if len(chosen) < count:
        raise RuntimeError(f"only {len(chosen)} of {count} free ports found on 127.0.0.1")
    return chosen


def is_free(port: int) -> bool:
    """Whether nothing listens on this loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
