"""A closed loop: each worker asks, waits for the answer, and asks again.

After an error a worker rests for a moment. A load is bounded by its time, and each call by its
time-out or, where a client has none, by what is done to the servers.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from bench.load import Sample, undisturbed
from bench.workload import Kind

REST: Final = 0.05
"""Seconds that a worker rests after an error; who fails at once would do nothing but fail."""
GRACE: Final = 30.0
"""Seconds that a load may run on after its time-outs before it is abandoned."""


@dataclass(frozen=True, slots=True)
class Request:
    """One call, made once and sent many times.

    Attributes:
        kind: Whether it changes the store.
        method: As reported.
        message: What is sent.
    """

    kind: Kind
    method: str
    message: Any


@dataclass(frozen=True, slots=True)
class Workload:
    """Reads and writes, each drawn with equal chances.

    Attributes:
        read_part: Chance of a read, 0 .. 1.
        reads: One of them is drawn.
        writes: One of them is drawn; none are needed if all is read.
    """

    read_part: float
    reads: Sequence[Request]
    writes: Sequence[Request] = ()

    def draw(self, rng: random.Random) -> Request:
        """Return what a worker does next."""
        is_read = rng.random() < self.read_part
        return rng.choice(self.reads if is_read else self.writes)


@dataclass(frozen=True, slots=True)
class Load:
    """What workers do.

    Attributes:
        workload: What they ask.
        workers: How many ask at once.
        seconds: No call starts later than this.
        timeout: Seconds per call.
        seed: Decides what each worker draws: the same for every contender of a round.
    """

    workload: Workload
    workers: int
    seconds: float
    timeout: float
    seed: str

    def rng(self, worker: int) -> random.Random:
        """Return what decides the requests of a worker."""
        return random.Random(f"{self.seed} {worker}")


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of a load.

    Attributes:
        began_at: A time of ``time.perf_counter``; samples count from it.
        samples: By their start.
        seconds: As the load was to last.
        cpu: CPU time that this process used per second: above 0.9 the client is what is measured.
    """

    began_at: float
    samples: list[Sample]
    seconds: float
    cpu: float


class Driver(Protocol):
    """Runs loads on one client; ``close`` also closes it."""

    def run(self, load: Load) -> Measured:
        """Run the load and return when every call has ended."""

    def close(self) -> None:
        """Close the client."""


Record: TypeAlias = tuple[float, float, Request, str, str | None]
"""Start, end, request, who answered if the answer tells, error."""
Ask: TypeAlias = Callable[[Request, float], str]
"""Sends a request, with so many seconds of patience; returns who answered, or ``""``."""
NameOf: TypeAlias = Callable[[Exception], str | None]
"""Says what an error is called in the report; None if it is a fault of the benchmark's."""


def run_threads(load: Load, ask: Ask, name_of: NameOf) -> Measured:
    """Run the load on a client that threads share, one thread for each worker.

    Raises:
        TimeoutError: Calls were still running long after the end.
        Exception: What a call raised and ``name_of`` does not know.
    """
    records: list[Record] = []
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            _work(load, load.rng(number), end, ask, name_of, records)
        except BaseException as failure:
            failures.append(failure)

    workers = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(load.workers)]
    with undisturbed():
        used, began_at = time.process_time(), time.perf_counter()
        end = began_at + load.seconds
        for worker in workers:
            worker.start()
        deadline = end + load.timeout + GRACE
        for worker in workers:
            worker.join(max(0.0, deadline - time.perf_counter()))
    if any(worker.is_alive() for worker in workers):
        raise TimeoutError(f"calls still running {GRACE:g} s after their time-out")
    if failures:
        raise failures[0]
    return measured(load, records, began_at, used)


def _work(
    load: Load,
    rng: random.Random,
    end: float,
    ask: Ask,
    name_of: NameOf,
    records: list[Record],
) -> None:
    draw, timeout, clock = load.workload.draw, load.timeout, time.perf_counter
    while (started := clock()) < end:
        request = draw(rng)
        who, error = "", None
        try:
            who = ask(request, timeout)
        except Exception as failure:
            error = name_of(failure)
            if error is None:
                raise
        records.append((started, clock(), request, who, error))
        if error is not None:
            time.sleep(REST)


def measured(load: Load, records: Iterable[Record], began_at: float, used: float) -> Measured:
    """Return what came of a load that has just ended.

    Args:
        load: The load.
        records: One of each call.
        began_at: When it began, by ``time.perf_counter``.
        used: ``time.process_time`` then.
    """
    took = time.perf_counter() - began_at
    samples = [
        Sample(started - began_at, ended - started, 0.0, request.kind, request.method, error, who)
        for started, ended, request, who, error in sorted(records, key=lambda record: record[0])
    ]
    return Measured(began_at, samples, load.seconds, (time.process_time() - used) / took)
