"""A closed loop of many workers on one client of etcd, sync or asyncio, as the paper's are."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

import grpc

from bench.closed_loop import (
    GRACE,
    REST,
    Driver,
    Load,
    Measured,
    Record,
    Request,
    measured,
    run_threads,
)
from bench.contenders import Mode
from bench.etcd.contenders import Client, Contender, Place, open_client
from bench.load import undisturbed


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
        records: list[Record] = []
        used, began_at = time.process_time(), time.perf_counter()
        end = began_at + load.seconds
        async with asyncio.timeout(load.seconds + load.timeout + GRACE):
            async with asyncio.TaskGroup() as group:
                for number in range(load.workers):
                    group.create_task(self._work(load, load.rng(number), end, records))
        return measured(load, records, began_at, used)

    async def _work(
        self, load: Load, rng: random.Random, end: float, records: list[Record]
    ) -> None:
        put, get = self._client.put, self._client.get
        draw, timeout, clock = load.workload.draw, load.timeout, time.perf_counter
        while (started := clock()) < end:
            request = draw(rng)
            member, error = "", None
            try:
                stub = get if request.kind == "read" else put
                reply = await stub(request.message, timeout=timeout)
                member = self._names.get(reply.header.member_id, "")
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
        put, get, names = self._client.put, self._client.get, self._names

        def ask(request: Request, timeout: float) -> str:
            stub = get if request.kind == "read" else put
            return names.get(stub(request.message, timeout=timeout).header.member_id, "")

        def name_of(failure: Exception) -> str | None:
            return code_of(failure) if isinstance(failure, grpc.RpcError) else None

        return run_threads(load, ask, name_of)

    def close(self) -> None:
        """Close the client."""
        self._client.close()


def open_driver(contender: Contender, place: Place, mode: Mode, names: dict[int, str]) -> Driver:
    """Return a driver of a new client; ``names`` tells members from their ids."""
    kind = AsyncioEtcdDriver if mode == "asyncio" else SyncEtcdDriver
    return kind(lambda: open_client(contender, place, mode), names)


def code_of(error: Any) -> str:
    """Return the name of the status code of an error of gRPC's."""
    return str(error.code().name) if hasattr(error, "code") else type(error).__name__
