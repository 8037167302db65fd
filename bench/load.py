"""Load on a sync or asyncio client, each operation timed from its *intended* start.

In the open loop a slow answer delays no later arrival, so a stall is charged to everyone who
would have met it (no coordinated omission). The closed loop is for throughput.

Both drivers take the same plans and look the same to a scenario, so that every contender is
treated alike. Each load is bounded in count and in time.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, cycle, islice
from typing import Any, Protocol, cast

from bench.timers import wake_precisely
from bench.workload import Arrival, Kind, Operation

# Threads of the sync open loop. A frozen endpoint holds one for a whole time-out.
THREADS = 32
# Seconds that a load may run on after its last intended start before it is abandoned.
GRACE = 60.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One finished operation.

    Attributes:
        at: Intended start, seconds from the beginning of the load.
        latency: Seconds from the intended start to the answer or error.
        late: Seconds from the intended start to the real one: the generator's own error.
        kind: Read or write.
        method: The client's method.
        error: Name of the exception's type; None after an answer.
        endpoint: Who answered, where the answer tells.
    """

    at: float
    latency: float
    late: float
    kind: Kind
    method: str
    error: str | None
    endpoint: str = ""


class Driver(Protocol):
    """Runs loads on one client. Not thread-safe; ``close`` also closes the client."""

    client: object

    def open_loop(self, arrivals: Sequence[Arrival]) -> list[Sample]:
        """Start each arrival at its time; return when all have finished."""

    def closed_loop(
        self, operations: Sequence[Operation], *, seconds: float, limit: int
    ) -> list[Sample]:
        """Repeat ``operations`` one after another until ``seconds`` or ``limit`` of them."""

    def close(self) -> None:
        """Close the client."""


class SyncDriver:
    """Drives a sync client that threads share."""

    def __init__(self, open_client: Callable[[], Any], *, threads: int = THREADS) -> None:
        self.client = open_client()
        self.began_at = 0.0
        """When the last open loop began, by ``time.perf_counter``; its samples count from then."""
        self._threads = threads

    def open_loop(self, arrivals: Sequence[Arrival]) -> list[Sample]:
        """Let each idle thread take the next arrival and sleep until its intended start."""
        calls = [_bind(self.client, arrival.operation) for arrival in arrivals]
        numbers = count()
        samples: list[list[Sample]] = [[] for _ in range(self._threads)]
        self.began_at = began_at = time.perf_counter() + 0.02

        def work(done: list[Sample]) -> None:
            wake_precisely()
            # `next` of itertools.count is atomic, so no lock is needed to share the arrivals.
            while (i := next(numbers)) < len(arrivals):
                arrival = arrivals[i]
                intended = began_at + arrival.at
                if (wait := intended - time.perf_counter()) > 0:
                    time.sleep(wait)
                started = time.perf_counter()
                error = None
                try:
                    calls[i]()
                except Exception as failure:
                    error = type(failure).__name__
                ended = time.perf_counter()
                done.append(_sample(arrival, ended - intended, started - intended, error))

        workers = [threading.Thread(target=work, args=(done,), daemon=True) for done in samples]
        with undisturbed():
            for worker in workers:
                worker.start()
            deadline = began_at + (arrivals[-1].at if arrivals else 0.0) + GRACE
            for worker in workers:
                worker.join(max(0.0, deadline - time.perf_counter()))
        if any(worker.is_alive() for worker in workers):
            raise TimeoutError(f"operations still running {GRACE:g} s after the last arrival")
        return sorted((s for done in samples for s in done), key=lambda s: s.at)

    def closed_loop(
        self, operations: Sequence[Operation], *, seconds: float, limit: int
    ) -> list[Sample]:
        """Repeat ``operations`` from this thread alone."""
        calls = [(operation, _bind(self.client, operation)) for operation in operations]
        samples: list[Sample] = []
        with undisturbed():
            began_at = ended = time.perf_counter()
            for operation, call in islice(cycle(calls), limit):
                started, error = ended, None
                if started - began_at >= seconds:
                    break
                try:
                    call()
                except Exception as failure:
                    error = type(failure).__name__
                ended = time.perf_counter()
                samples.append(
                    Sample(
                        started - began_at,
                        ended - started,
                        0.0,
                        operation.kind,
                        operation.method,
                        error,
                    )
                )
        return samples

    def close(self) -> None:
        """Close the client."""
        cast(Any, self.client).close()


class AsyncioDriver:
    """Drives an asyncio client on an event loop of its own."""

    def __init__(self, open_client: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._runner = asyncio.Runner()
        try:
            self.client = self._runner.run(open_client())
        except BaseException:
            self._runner.close()
            raise

    def open_loop(self, arrivals: Sequence[Arrival]) -> list[Sample]:
        """Start one task per arrival."""
        with undisturbed():
            return self._runner.run(self._open_loop(arrivals))

    async def _open_loop(self, arrivals: Sequence[Arrival]) -> list[Sample]:
        calls = [_bind(self.client, arrival.operation) for arrival in arrivals]
        samples: list[Sample] = []
        began_at = time.perf_counter() + 0.02

        async def run(arrival: Arrival, call: Callable[[], Awaitable[object]]) -> None:
            started = time.perf_counter()
            error = None
            try:
                await call()
            except Exception as failure:
                error = type(failure).__name__
            intended = began_at + arrival.at
            ended = time.perf_counter()
            samples.append(_sample(arrival, ended - intended, started - intended, error))

        tasks = set()
        for arrival, call in zip(arrivals, calls, strict=True):
            intended = began_at + arrival.at
            # A timer of the loop would be up to 1 ms late, several times an answer's time.
            while time.perf_counter() < intended:  # noqa: ASYNC110
                await asyncio.sleep(0)
            task = asyncio.create_task(run(arrival, call))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        async with asyncio.timeout(GRACE):
            await asyncio.gather(*tasks)
        return sorted(samples, key=lambda sample: sample.at)

    def closed_loop(
        self, operations: Sequence[Operation], *, seconds: float, limit: int
    ) -> list[Sample]:
        """Repeat ``operations`` from one task."""
        with undisturbed():
            return self._runner.run(self._closed_loop(operations, seconds, limit))

    async def _closed_loop(
        self, operations: Sequence[Operation], seconds: float, limit: int
    ) -> list[Sample]:
        calls = [(operation, _bind(self.client, operation)) for operation in operations]
        samples: list[Sample] = []
        began_at = ended = time.perf_counter()
        for operation, call in islice(cycle(calls), limit):
            started, error = ended, None
            if started - began_at >= seconds:
                break
            try:
                await call()
            except Exception as failure:
                error = type(failure).__name__
            ended = time.perf_counter()
            samples.append(
                Sample(
                    started - began_at,
                    ended - started,
                    0.0,
                    operation.kind,
                    operation.method,
                    error,
                )
            )
        return samples

    def run(self, work: Coroutine[Any, Any, Any]) -> object:
        """Run `work` on the client's loop, which may be another thread's turn each time."""
        return self._runner.run(work)

    def close(self) -> None:
        """Close the client and its loop."""
        try:
            self._runner.run(cast(Any, self.client).aclose())
        finally:
            self._runner.close()


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Keep the garbage collector out of a measurement; what exists is not scanned again."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def _bind(client: Any, operation: Operation) -> Callable[[], Any]:
    method = getattr(client, operation.method)
    arguments = operation.arguments
    return lambda: method(*arguments)


def _sample(arrival: Arrival, latency: float, late: float, error: str | None) -> Sample:
    operation = arrival.operation
    return Sample(arrival.at, latency, late, operation.kind, operation.method, error)
