"""A closed loop of many workers on one client of etcd, sync or asyncio.

Each worker asks, waits for the answer, and asks again, as the paper's do; after an error it rests
for a moment. A load is bounded by its time, and each call by its time-out.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import grpc

from bench.contenders import Mode
from bench.etcd.contenders import Client, Contender, Place, open_client
from bench.etcd.workload import Request, Workload
from bench.load import Sample, undisturbed

# Seconds that a worker rests after an error: who fails at once would otherwise do nothing but fail.
REST = 0.05
# Seconds that a load may run on after its time-outs before it is abandoned.
GRACE = 30.0


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


class EtcdDriver(Protocol):
    """Runs loads on one client; ``close`` also closes it."""

    def run(self, load: Load) -> Measured:
        """Run the load and return when every call has ended."""

    def close(self) -> None:
        """Close the client."""


# Start, end, request, id of the member that answered, error.
_Record = tuple[float, float, Request, int, str | None]


class AsyncioEtcdDriver:
    """Drives an asyncio client on an event loop of its own."""

    def __init__(self, open_it: Callable[[], Client], names: dict[int, str]) -> None:
        self._runner = asyncio.Runner()
        self._names = names
        try:
            self._client = self._runner.run(self._open(open_it))
        except BaseException:
            self._runner.close()
            raise

    def run(self, load: Load) -> Measured:
        """Run the load."""
        with undisturbed():
            return self._runner.run(self._run(load))

    def close(self) -> None:
        """Close the client and its loop."""
        try:
            self._runner.run(self._close())
        finally:
            self._runner.close()

    async def _open(self, open_it: Callable[[], Client]) -> Client:
        return open_it()

    async def _close(self) -> None:
        if (closing := self._client.close()) is not None:
            await closing

    async def _run(self, load: Load) -> Measured:
        records: list[_Record] = []
        used, began_at = time.process_time(), time.perf_counter()
        end = began_at + load.seconds
        async with asyncio.timeout(load.seconds + load.timeout + GRACE):
            async with asyncio.TaskGroup() as group:
                for number in range(load.workers):
                    rng = random.Random(f"{load.seed} {number}")
                    group.create_task(self._work(load, rng, end, records))
        return _measured(load, records, began_at, used, self._names)

    async def _work(
        self, load: Load, rng: random.Random, end: float, records: list[_Record]
    ) -> None:
        put, get = self._client.put, self._client.get
        draw, timeout, clock = load.workload.draw, load.timeout, time.perf_counter
        while (started := clock()) < end:
            request = draw(rng)
            member, error = 0, None
            try:
                stub = get if request.kind == "read" else put
                reply = await stub(request.message, timeout=timeout)
                member = reply.header.member_id
            except grpc.RpcError as failure:
                error = code_of(failure)
            records.append((started, clock(), request, member, error))
            if error is not None:
                await asyncio.sleep(REST)


class SyncEtcdDriver:
    """Drives a sync client that threads share."""

    def __init__(self, open_it: Callable[[], Client], names: dict[int, str]) -> None:
        self._client = open_it()
        self._names = names

    def run(self, load: Load) -> Measured:
        """Run the load."""
        records: list[_Record] = []
        failures: list[BaseException] = []
        used, began_at = time.process_time(), time.perf_counter()
        end = began_at + load.seconds

        def work(number: int) -> None:
            try:
                self._work(load, random.Random(f"{load.seed} {number}"), end, records)
            except BaseException as failure:
                failures.append(failure)

        workers = [
            threading.Thread(target=work, args=(i,), daemon=True) for i in range(load.workers)
        ]
        with undisturbed():
            for worker in workers:
                worker.start()
            deadline = end + load.timeout + GRACE
            for worker in workers:
                worker.join(max(0.0, deadline - time.perf_counter()))
        if any(worker.is_alive() for worker in workers):
            raise TimeoutError(f"calls still running {GRACE:g} s after their time-out")
        if failures:
            raise failures[0]
        return _measured(load, records, began_at, used, self._names)

    def close(self) -> None:
        """Close the client."""
        self._client.close()

    def _work(self, load: Load, rng: random.Random, end: float, records: list[_Record]) -> None:
        put, get = self._client.put, self._client.get
        draw, timeout, clock = load.workload.draw, load.timeout, time.perf_counter
        while (started := clock()) < end:
            request = draw(rng)
            member, error = 0, None
            try:
                stub = get if request.kind == "read" else put
                member = stub(request.message, timeout=timeout).header.member_id
            except grpc.RpcError as failure:
                error = code_of(failure)
            records.append((started, clock(), request, member, error))
            if error is not None:
                time.sleep(REST)


def open_driver(
    contender: Contender, place: Place, mode: Mode, names: dict[int, str]
) -> EtcdDriver:
    """Return a driver of a new client; ``names`` tells members from their ids."""
    kind = AsyncioEtcdDriver if mode == "asyncio" else SyncEtcdDriver
    return kind(lambda: open_client(contender, place, mode), names)


def code_of(error: Any) -> str:
    """Return the name of the status code of an error of gRPC's."""
    return str(error.code().name) if hasattr(error, "code") else type(error).__name__


def _measured(
    load: Load, records: list[_Record], began_at: float, used: float, names: dict[int, str]
) -> Measured:
    took = time.perf_counter() - began_at
    samples = [
        Sample(
            started - began_at,
            ended - started,
            0.0,
            request.kind,
            request.method,
            error,
            names.get(member, ""),
        )
        for started, ended, request, member, error in sorted(records, key=lambda record: record[0])
    ]
    return Measured(began_at, samples, load.seconds, (time.process_time() - used) / took)
