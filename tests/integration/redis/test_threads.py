"""The threads of a synchronous client share its connections: one's trouble is not another's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from bench.servers.redis import RedisClusterServers
from lb_strategies_redis import use_strategy

from . import library
from .drivers import Connector
from .nodes import KEYS, frozen, key_on, move, moved_replies, require_caching

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


def blocking(shards: RedisClusterServers) -> dict[str, Any]:
    """Return options that have whoever needs a connection wait for one, if there are too many."""
    url = f"{library.NAME}://{shards.host}:{shards.port}"
    return {"url": url, "connection_pool_class": library.connection.BlockingConnectionPool}


@pytest.fixture(params=["usual", "blocking", "caching"])
def pool(request: pytest.FixtureRequest, shards: RedisClusterServers) -> dict[str, Any]:
    """Options that give each node's connections to a pool of this kind."""
    if request.param == "blocking":
        return blocking(shards)
    if request.param == "caching":
        require_caching(shards)
        return {"protocol": 3, **library.CACHE}
    return {}


@pytest.mark.parametrize("command", ["set", "xread"])
async def test_a_redirect_that_fails_cuts_no_other_threads_connection(
    connect: Connector, shards: RedisClusterServers, pool: dict[str, Any], command: str
) -> None:
    """redis-py gives a connection back on MOVED and cuts it when the next one fails.

    valkey-py then also gives it to the pool of the node that it could not connect to.
    """
    source, target = shards.primaries
    key, other = key_on(shards, 0), key_on(shards, 0, 1)
    client = await connect.ours(
        shards, "latency_based", **pool, **connect.retries(0), socket_timeout=TIMEOUT
    )
    arguments: dict[str, tuple[Any, ...]] = {"set": (key, "v"), "xread": ({key: "0"}, None, 9)}
    await client.set(key, "v")
    move(shards, key, source, target)
    source.ask("CONFIG", "RESETSTAT")
    try:
        with frozen(target), client.client.primary_reads():
            redirected = asyncio.ensure_future(client.call(command, *arguments[command]))
            await asyncio.sleep(TIMEOUT / 3)
            waiting = asyncio.ensure_future(client.blpop(f"{{{other}}}list", timeout=0.8 * TIMEOUT))
            with pytest.raises(library.ClientError):
                await redirected
            assert await waiting is None
        assert moved_replies(source) == 1
        for node in client.client.get_nodes():
            assert {connection.port for connection in pooled(node)} <= {node.port}
    finally:
        move(shards, key, target, source)


def pooled(node: Any) -> list[Any]:
    """Return the idle connections of a node's pool."""
    server = library.node_client(node)
    pool = None if server is None else server.connection_pool
    queue = getattr(pool, "pool", None)  # of a blocking pool
    idle = getattr(pool, "_available_connections", []) if queue is None else queue.queue
    return [connection for connection in idle if connection is not None]


async def test_a_client_with_blocking_pools_can_be_opted_in_while_it_is_used(
    connect: Connector, shards: RedisClusterServers
) -> None:
    """Neither that, nor a refresh of the topology, cuts what other threads are waiting on."""
    client = await connect.stock(shards, max_connections=2, **blocking(shards))
    key = key_on(shards, 0)

    def wait() -> asyncio.Future[Any]:
        return asyncio.ensure_future(client.blpop(f"{{{key}}}list", timeout=TIMEOUT))

    async def work() -> None:
        reads = await client.together([("get", key)] * 16)
        assert reads == [key] * 16

    waiting = wait()
    await work()
    client.balancer = use_strategy(client.client, "latency_based")
    await work()
    assert await waiting is None
    assert all(client.stats()[node.endpoint].successes for node in shards.nodes[::2])
    waiting = wait()
    await asyncio.to_thread(client.client.nodes_manager.initialize)
    await work()
    assert await waiting is None
    assert client.total("failures") == 0


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
