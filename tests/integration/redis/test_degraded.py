"""A replica that is slow, or that answers nothing: few reads find out, and no user."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from bench.proxy import FaultProxy
from bench.servers.process import wait_until
from bench.servers.redis import RedisClusterServers, RedisNode

from . import library
from .drivers import Connector
from .nodes import calls, frozen, killed, owner, since

pytestmark = [pytest.mark.integration, pytest.mark.long]

PAUSE = 0.002
"""Seconds between two reads of a closed loop: some 300 reads a second."""


@pytest.fixture
def proxies(shard: RedisClusterServers) -> Iterator[list[FaultProxy]]:
    """Stand in front of every server: one alone would make its server the slowest."""
    with ExitStack() as stack:
        yield [stack.enter_context(FaultProxy(node.host, node.port)) for node in shard.nodes]


@pytest.mark.alone
async def test_a_slow_replica_loses_its_share_and_gets_it_back(
    connect: Connector, shard: RedisClusterServers, proxies: list[FaultProxy]
) -> None:
    """https://github.com/redis/redis-py/issues/4185: it keeps its full share, and R14."""
    ports = {node.port: proxy.port for node, proxy in zip(shard.nodes, proxies, strict=True)}
    client = await connect.ours(
        shard, "latency_based", address_remap=lambda address: (address[0], ports[address[1]])
    )
    sick, proxy = shard.nodes[-1:], proxies[-1]
    before = calls(sick)
    log = await client.reads(count=100, pause=PAUSE)
    assert sum(since(before, sick).values()) > 0
    assert client.stats().keys() == {proxy.endpoint for proxy in proxies}

    proxy.delay(0.008)
    before = calls(sick)
    await client.reads(seconds=3, pause=PAUSE)
    learning = sum(since(before, sick).values())
    before = calls(sick)
    log = await client.reads(seconds=3, pause=PAUSE)
    settled = sum(since(before, sick).values())
    # The design allows ten reads in the ten seconds after the onset.
    assert learning <= 10
    assert settled <= 10 - learning
    assert log.errors == []
    assert len(log.values) > 100

    proxy.undo()
    healed_at = time.monotonic()
    share = 0.0
    while share <= 0.5 / len(shard.nodes) and time.monotonic() - healed_at < 15:
        before = calls(sick)
        log = await client.reads(count=200, pause=PAUSE)
        share = sum(since(before, sick).values()) / len(log.values)
    assert share > 0.5 / len(shard.nodes)


@pytest.mark.alone
async def test_a_frozen_replica_is_noticed_by_few_reads_and_no_user(
    connect: Connector, shard: RedisClusterServers
) -> None:
    """https://github.com/aembke/fred.rs/issues/208: used for ever; stock: 13 of 13 slow."""
    client = await connect.ours(shard, "latency_based", socket_timeout=0.5)
    await client.reads(count=50)
    well = [node for node in shard.nodes if node is not shard.replicas[0]]
    before = calls(well, "cluster|slots")
    with frozen(shard.replicas[0]):
        log = await client.reads(seconds=12, pause=PAUSE)
        refreshes = sum(since(before, well, "cluster|slots").values())
        stats = client.stats()
    assert log.errors == []
    assert len(log.slow(0.100)) <= 3, log.slow(0.100)
    assert len(log.values) > 1000
    assert refreshes <= 12 + 1  # one a second at most
    assert {endpoint: s.in_flight for endpoint, s in stats.items() if s.in_flight} == {}
    assert stats[shard.replicas[0].endpoint].timeouts > 0


async def test_a_frozen_replica_stops_no_pipeline(
    connect: Connector, shard: RedisClusterServers
) -> None:
    """https://github.com/redis/redis-py/issues/3130: a time-out made the client unusable."""
    client = await connect.ours(shard, "latency_based", socket_timeout=0.5)
    await client.reads(count=50)
    with frozen(shard.replicas[0]):
        start = time.perf_counter()
        for _ in range(50):
            assert await client.pipeline([("get", "key:0"), ("get", "key:1")]) == ["key:0", "key:1"]
        # The stock client would wait for half a second in one of three.
        assert time.perf_counter() - start < 50 * 0.5 / 3
    for _ in range(100):
        assert await client.pipeline([("get", "key:0"), ("get", "key:1")]) == ["key:0", "key:1"]


async def test_concurrent_reads_all_survive_a_frozen_replica(
    connect: Connector, shard: RedisClusterServers
) -> None:
    client = await connect.ours(shard, "latency_based", socket_timeout=0.5)
    await client.reads(count=50)
    with frozen(shard.replicas[0]):
        for _ in range(5):
            answers = await client.together([("get", "key:0")] * 24)
            assert answers == ["key:0"] * 24
            await asyncio.sleep(0.1)


async def test_a_write_that_times_out_is_told_to_the_user(
    connect: Connector, lonely: RedisClusterServers
) -> None:
    """It may have been executed: sending it again is redis-py's decision, not ours."""
    sick = owner(lonely, "key:0")
    client = await connect.ours(lonely, "latency_based", socket_timeout=0.3, **connect.retries(0))
    await client.set("key:0", "v")
    with frozen(sick):
        with pytest.raises(library.errors.TimeoutError):
            await client.set("key:0", "v")
        assert client.total("in_flight") == 0
        sent = connect.attempts(0)  # as often as the library itself would
        assert client.stats()[sick.endpoint].timeouts == client.total("timeouts") == sent
    # Without another command redis-py's asyncio client does not close its connections.
    assert await client.set("key:0", "w")


async def test_a_client_closed_after_a_retried_read_leaves_no_connection(
    connect: Connector, shard: RedisClusterServers
) -> None:
    well = shard.primaries[0]
    before = connections(well)
    client = await connect.ours(shard, "latency_based", **connect.retries(2))
    await client.reads(count=50)
    assert connections(well) > before
    await asyncio.sleep(1.1)  # from now on a failure has the topology refreshed
    with killed(shard, *shard.replicas):
        while not client.total("failures"):
            assert await client.get("key:0") == "key:0"
        await client.close()
        try:
            wait_until(lambda: connections(well) <= before, "no connection is left", timeout=5)
        finally:
            # What is left would disturb a later test; valkey-py's closed client stays closed.
            if client.mode == "asyncio" and library.NAME == "redis":
                await client.get("key:0")


def connections(node: RedisNode) -> int:
    """Return how many clients are connected to the server."""
    return len(str(node.ask("CLIENT", "LIST", "TYPE", "NORMAL")).splitlines())


async def test_a_lost_connection_cuts_nothing_that_is_under_way_elsewhere(
    connect: Connector, shard: RedisClusterServers
) -> None:
    """redis-py 5.3 and 6.4 close every connection of an asyncio client then."""
    client = await connect.ours(shard, "latency_based_replicas", socket_timeout=2)
    await client.reads(count=20)
    primary = shard.primaries[0]
    before = primary.command_calls("blpop")
    await asyncio.sleep(1.1)  # from now on a failure has the topology refreshed
    with frozen(*shard.replicas):
        reading = asyncio.ensure_future(client.get("key:0"))
        await asyncio.sleep(1)
        waiting = asyncio.ensure_future(client.blpop("empty", 1.5))  # while the read is given up
        assert await reading == "key:0"
        assert await waiting is None
    assert primary.command_calls("blpop") == before + 1
    assert client.stats()[primary.endpoint].failures == 0
