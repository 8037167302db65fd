"""Faults that users of other clients have reported, where no other file is about them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from bench.proxy import FaultProxy
from bench.servers.redis import RedisClusterServers, RedisNode

from .drivers import Connector
from .nodes import KEYS, calls, fill, frozen, killed, moved_replies, owner, since

pytestmark = pytest.mark.integration

PAUSE = 0.002
"""Seconds between two reads of a closed loop."""


async def test_a_retry_goes_to_a_node_that_has_not_failed_this_call(
    connect: Connector, shard: RedisClusterServers
) -> None:
    """https://github.com/redis/redis-py/issues/3681: each refresh began again at the dead node."""
    client = await connect.ours(shard, "latency_based", socket_timeout=0.5)
    await client.reads(count=30)
    with frozen(shard.primaries[0]):
        log = await client.reads(count=100, keys=KEYS)
    assert log.errors == []
    assert len(log.slow(0.4)) <= 2  # of 100, where stock round robin has a third


@pytest.mark.parametrize("strategy", ["latency_based", "latency_based_replicas", "hybrid"])
async def test_the_first_read_of_a_client_survives_a_dead_replica(
    connect: Connector, shard: RedisClusterServers, strategy: str
) -> None:
    """https://github.com/redis/lettuce/issues/3502: the first candidate was the only one tried."""
    with killed(shard, shard.replicas[0]):
        for _ in range(5):
            client = await connect.ours(shard, strategy)
            log = await client.reads(count=4)
            assert log.errors == []
            assert log.values == ["key:0"] * 4
    fill(shard)


async def test_a_killed_node_is_left_after_its_first_failures(
    connect: Connector, shard: RedisClusterServers
) -> None:
    """https://github.com/redis/go-redis/issues/1839: it took 15 to 30 s to leave it."""
    client = await connect.ours(shard, "latency_based")
    await client.reads(count=60)
    sick = shard.replicas[0]
    with killed(shard, sick):
        log = await client.reads(count=300)
        failures = client.stats()[sick.endpoint].failures
    fill(shard)
    assert log.errors == []
    assert 1 <= failures <= 5


@contextlib.contextmanager
def busy(node: RedisNode) -> Iterator[None]:
    """Keep the server busy with something that blocks it, over and over."""
    done = threading.Event()

    def run() -> None:
        with node.client() as client:
            while not done.is_set():
                client.execute_command("DEBUG", "SLEEP", 0.02)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


async def test_a_primary_that_is_busy_sheds_its_reads(
    connect: Connector, shard: RedisClusterServers
) -> None:
    """https://github.com/redis/redis/issues/12287: it kept half of all reads."""
    client = await connect.ours(shard, "latency_based")
    await client.reads(count=60)
    with busy(shard.primaries[0]):
        await client.reads(seconds=1, pause=PAUSE)
        before = calls(shard.nodes)
        log = await client.reads(seconds=2, pause=PAUSE)
        primary, *replicas = since(before, shard.nodes).values()
    assert log.errors == []
    assert primary < 0.05 * sum(replicas)


async def test_no_node_outside_the_slot_is_asked_when_its_own_are_down(
    connect: Connector, shards: RedisClusterServers
) -> None:
    """https://github.com/redis/go-redis/issues/3023: latency routing caused storms of MOVED."""
    client = await connect.ours(shards, "latency_based", **connect.retries(1), socket_timeout=0.3)
    await client.reads(count=40, keys=KEYS)
    down = owner(shards, "key:0")
    pair = [down, shards.replicas[shards.primaries.index(down)]]
    others = [node for node in shards.nodes if node not in pair]
    before = calls(others), [moved_replies(node) for node in others]
    with frozen(*pair):
        log = await client.reads(count=3)
        elsewhere = since(before[0], others)
    # Without another command redis-py's asyncio client does not close its connections.
    assert await client.get("key:0") == "key:0"
    assert len(log.errors) == 3
    assert set(elsewhere.values()) == {0}
    assert [moved_replies(node) for node in others] == before[1]


async def test_two_slow_candidates_of_three_are_avoided(
    connect: Connector, shard: RedisClusterServers
) -> None:
    """https://github.com/apache/brpc/issues/3340: the better of two drawn is not good enough."""
    with ExitStack() as stack:
        proxies = [stack.enter_context(FaultProxy(node.host, node.port)) for node in shard.nodes]
        ports = {node.port: proxy.port for node, proxy in zip(shard.nodes, proxies, strict=True)}
        client = await connect.ours(
            shard, "latency_based", address_remap=lambda address: (address[0], ports[address[1]])
        )
        await client.reads(count=60)
        for proxy in proxies[1:]:
            proxy.delay(0.1)  # more than a busy machine adds to the good one
        await client.reads(seconds=1, pause=PAUSE)
        before = calls(shard.nodes)
        log = await client.reads(seconds=3, pause=PAUSE)
        good, *slow = since(before, shard.nodes).values()
        await client.close()
    assert log.errors == []
    assert sum(slow) < 0.5 * good  # two drawn out of three would be slow ones in a third
