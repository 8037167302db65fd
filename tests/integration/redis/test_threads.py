"""The threads of a synchronous client share its connections: one's trouble is not another's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from bench.servers.redis import RedisClusterServers

from . import library
from .drivers import Connector
from .nodes import KEYS, frozen, key_on, move

pytestmark = pytest.mark.integration

TIMEOUT = 1.0
"""Seconds that the client waits for a server."""


@pytest.fixture
async def connect() -> AsyncIterator[Connector]:
    """Make synchronous clients."""
    connector = Connector("sync")
    try:
        yield connector
    finally:
        await connector.close()


async def test_a_redirect_that_fails_cuts_no_other_threads_connection(
    connect: Connector, lonely: RedisClusterServers
) -> None:
    """redis-py gives a connection back on MOVED and cuts it when the next one fails."""
    source, target = lonely.primaries
    key, other = key_on(lonely, 0), key_on(lonely, 0, 1)
    client = await connect.ours(
        lonely,
        "latency_based",
        **connect.retries(0),
        socket_timeout=TIMEOUT,
    )
    await client.get(key)
    move(lonely, key, source, target)
    try:
        with frozen(target):
            redirected = asyncio.ensure_future(client.get(key))
            await asyncio.sleep(TIMEOUT / 3)
            waiting = asyncio.ensure_future(client.blpop(f"{{{other}}}list", timeout=0.8 * TIMEOUT))
            with pytest.raises(library.ClientError):
                await redirected
            assert await waiting is None
    finally:
        move(lonely, key, target, source)


def test_one_client_serves_many_threads(shards: RedisClusterServers) -> None:
    with library.OURS["sync"](
        host=shards.host,
        port=shards.port,
        load_balancing_strategy="latency_based",
        decode_responses=True,
        socket_timeout=5,
    ) as client:

        def use(worker: int) -> None:
            for turn in range(30):
                key = KEYS[(worker + turn) % len(KEYS)]
                assert client.get(key) == key
                assert client.incr(f"counter:{worker}") == turn + 1
                with client.pipeline() as pipe:
                    for other in KEYS[:8]:
                        pipe.get(other)
                    assert pipe.execute() == list(KEYS[:8])

        with ThreadPoolExecutor(16) as threads:
            for done in [threads.submit(use, worker) for worker in range(16)]:
                done.result(timeout=60)
        for stats in client.endpoint_stats().values():
            assert (stats.in_flight, stats.failures) == (0, 0)
        client.disconnect_connection_pools()
