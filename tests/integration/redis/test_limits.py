"""Pools that are exhausted, and pipelines whose node falls silent in the middle."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bench.servers.redis import RedisClusterServers
from lb_strategies import BalancerOptions

from . import library
from .drivers import Connector, Driver
from .nodes import KEYS, frozen

pytestmark = pytest.mark.integration

FREEZE = 2.0


async def test_an_exhausted_pool_recovers(connect: Connector, shard: RedisClusterServers) -> None:
    """https://github.com/redis/redis-py/issues/3684 and #4110: slots leak, the node is lost.

    The limit is the client's own, so it says nothing against the node.
    """
    # In turn, and with nobody ejected for latency: on a busy machine a node that was slow once
    # would rightly be spared, and not be exhausted.
    evenly = {"balancer_options": BalancerOptions(outlier_floor=60.0)}
    client = await connect.ours(shard, "hybrid", max_connections=5, **evenly)
    await client.reads(count=60, keys=KEYS)
    with frozen(shard.replicas[0]):
        running = [
            asyncio.ensure_future(client.together([("get", key) for key in KEYS[:50]]))
            for _ in range(2)
        ]
        await asyncio.sleep(FREEZE)
    results = [result for each in await asyncio.gather(*running) for result in each]
    for key, result in zip(KEYS[:50] * 2, results, strict=True):
        assert result == key or isinstance(result, library.errors.MaxConnectionsError), repr(result)
    assert any(isinstance(result, library.errors.MaxConnectionsError) for result in results)
    # Five connections to each of two nodes that answer are more than nothing.
    assert sum(isinstance(result, str) for result in results) >= 10
    assert client.total("failures") == client.total("timeouts") == 0
    assert client.total("in_flight") == 0
    log = await client.reads(count=100, keys=KEYS)
    assert log.errors == []
    assert await client.together([("get", "key:0")] * 5) == ["key:0"] * 5


async def through(client: Driver, turn: int) -> Any:
    """Run a pipeline of reads and writes on every node and check what it says."""
    commands: list[tuple[Any, ...]] = []
    for key in KEYS[:16]:
        commands += [("get", key), ("set", f"{key}:turn", str(turn)), ("get", key)]
    results = await client.pipeline(commands)
    assert results == [value for key in KEYS[:16] for value in (key, True, key)]


@pytest.mark.parametrize("only_reads", [True, False])
async def test_a_pipeline_whose_node_is_stopped_in_the_middle(
    connect: Connector, shards: RedisClusterServers, only_reads: bool
) -> None:
    """https://github.com/redis/redis-py/issues/3130: a time-out made the client unusable."""
    client = await connect.ours(shards, "latency_based", socket_timeout=0.3, **connect.retries(1))
    reads = [("get", key) for key in KEYS]
    await through(client, 0)
    sick = shards.replicas[0] if only_reads else shards.primaries[0]
    errors = 0
    for _ in range(2):
        running = asyncio.ensure_future(keep_going(client, reads if only_reads else None))
        await asyncio.sleep(0.1)
        with frozen(sick):
            await asyncio.sleep(1)
        errors += await running
    if only_reads:
        assert errors == 0
    assert client.total("in_flight") == 0
    for turn in range(100):
        await through(client, turn)
    assert client.total("in_flight") == 0


async def keep_going(client: Driver, reads: Any) -> int:
    """Run pipelines for as long as a server is stopped; return how many failed."""
    loop = asyncio.get_running_loop()
    end = loop.time() + 1
    errors = turn = 0
    while loop.time() < end:
        turn += 1
        try:
            if reads is None:
                await through(client, turn)
            else:
                assert await client.pipeline(reads) == list(KEYS)
        except (library.ClientError, library.ClusterException):
            errors += 1
    return errors
