"""Several event loops in one process: one after another, and several at once."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from bench.servers.redis import RedisClusterServers

from . import library
from .nodes import KEYS, frozen

pytestmark = pytest.mark.integration

STALL = 0.3


def make(servers: RedisClusterServers) -> Any:
    return library.OURS["asyncio"](
        host=servers.host,
        port=servers.port,
        load_balancing_strategy="latency_based",
        decode_responses=True,
        socket_timeout=5,
    )


def total(client: Any, counter: str) -> int:
    return sum(getattr(stats, counter) for stats in client.endpoint_stats().values())


def peak(client: Any) -> float:
    return max(float(stats.peak_rtt) for stats in client.endpoint_stats().values())


def keep_busy(seconds: float) -> None:
    """Keep the event loop from running."""
    time.sleep(seconds)


async def use(client: Any, rounds: int = 4) -> None:
    for _ in range(rounds):
        assert await asyncio.gather(*(client.get(key) for key in KEYS)) == list(KEYS)
        async with client.pipeline() as pipe:
            for key in KEYS:
                pipe.get(key)
            assert await pipe.execute() == list(KEYS)


async def read_while_frozen(client: Any, servers: RedisClusterServers) -> Any:
    """Read a key that is answered only after `STALL` seconds."""
    with frozen(*servers.nodes):
        running = asyncio.ensure_future(client.get("key:0"))
        await asyncio.sleep(STALL)
        for node in servers.nodes:
            node.resume()
        return await running  # before this loop is kept busy with waiting for the servers


async def visit_anew(servers: RedisClusterServers) -> None:
    """Make a client in this loop, use it, and close it."""
    async with make(servers) as client:
        await use(client)
        assert total(client, "in_flight") == total(client, "failures") == 0


def test_event_loops_one_after_another(shard: RedisClusterServers) -> None:
    for _ in range(3):
        asyncio.run(visit_anew(shard))


def test_event_loops_in_several_threads_at_once(shard: RedisClusterServers) -> None:
    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(lambda: asyncio.run(visit_anew(shard))) for _ in range(4)]:
            done.result(timeout=30)


@library.reopens
def test_one_client_is_closed_in_each_loop_and_used_in_the_next(
    shard: RedisClusterServers,
) -> None:
    """It keeps what it has learned; the time in between is nobody's latency."""
    client = make(shard)

    async def visit() -> None:
        async with client:
            await use(client)
            assert total(client, "in_flight") == total(client, "failures") == 0

    for visits in range(1, 4):
        asyncio.run(visit())
        assert total(client, "picks") == visits * 4 * (len(KEYS) + 1)
        assert total(client, "successes") >= visits * 2 * len(KEYS)
        time.sleep(STALL)
    assert max(stats.mean_rtt for stats in client.endpoint_stats().values()) < STALL


@library.reopens
def test_a_loop_that_ends_does_not_silence_the_next_one(shard: RedisClusterServers) -> None:
    """The timer that looks for stalls ran on a loop that is gone; the next has its own."""
    client = make(shard)

    async def visit(*, stalls: bool) -> None:
        async with client:
            await use(client)  # also each connection of the loop before: none is made below
            if stalls:
                assert await read_while_frozen(client, shard) == "key:0"

    asyncio.run(visit(stalls=False))
    time.sleep(STALL)
    asyncio.run(visit(stalls=True))
    # Nobody's loop was kept busy: the wait was the server's, and was learned.
    assert peak(client) > STALL / 2
    assert total(client, "in_flight") == 0


def test_a_loop_kept_busy_does_not_excuse_a_server_in_another_loop(
    shard: RedisClusterServers,
) -> None:
    """Each client looks at its own loop: here one is kept busy while another one waits."""
    waits = threading.Barrier(2, timeout=30)

    async def busy() -> float:
        async with make(shard) as client:
            await use(client, rounds=1)
            waits.wait()
            running = asyncio.ensure_future(client.get("key:0"))
            await asyncio.sleep(0)
            keep_busy(3 * STALL)
            await running
            assert total(client, "in_flight") == 0
            return peak(client)

    async def waiting() -> float:
        async with make(shard) as client:
            await use(client, rounds=1)
            await read_while_frozen(client, shard)
            waits.wait()
            assert total(client, "in_flight") == 0
            return peak(client)

    with ThreadPoolExecutor(2) as threads:
        kept_busy, waited = threads.map(lambda work: asyncio.run(work()), (busy, waiting))
    assert kept_busy < 1.5 * STALL
    assert waited > STALL / 2
