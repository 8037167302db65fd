"""Where reads and writes go while every server is well, and when no replica is left."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from statistics import median
from typing import Any

import pytest

from bench.servers.redis import RedisClusterServers
from lb_strategies import BalancerOptions, LoadBalancingStrategy

from . import library
from .drivers import Connector, assert_answered
from .nodes import KEYS, calls, frozen, killed, moved_replies, since
from .policies import Greatest

pytestmark = pytest.mark.integration

WINDOW = 300
REPLICATION_PING = "repl-ping-replica-period"
UNEVENNESS = 1.2
"""The design's bar: no candidate gets more than this times its fair share of a window."""


@pytest.mark.alone
@pytest.mark.parametrize("strategy", ["latency_based", "hybrid"])
async def test_reads_spread_over_primary_and_replicas(
    connect: Connector, shard: RedisClusterServers, strategy: str
) -> None:
    """https://github.com/redis/go-redis/issues/3974: a strict minimum starves equal nodes."""
    client = await connect.ours(shard, strategy)
    await client.reads(count=100)
    greatest = []
    for _ in range(7):
        before = calls(shard.nodes)
        log = await client.reads(count=WINDOW)
        assert log.values == ["key:0"] * WINDOW
        greatest.append(max(since(before, shard.nodes).values()))
    # The median: another program can take the CPU from one server in one window.
    assert median(greatest) <= UNEVENNESS * WINDOW / len(shard.nodes)


@pytest.mark.parametrize("strategy", ["latency_based", "latency_based_replicas", "hybrid"])
async def test_writes_go_to_the_primary_only(
    connect: Connector, shard: RedisClusterServers, strategy: str
) -> None:
    client = await connect.ours(shard, strategy)
    [primary] = shard.primaries
    before = primary.command_calls("set"), [moved_replies(node) for node in shard.nodes]
    for i in range(50):
        await client.set(f"w{i}", "v")
    await client.pipeline([("set", f"w{i}", "v") for i in range(10)])
    # A replica would have answered MOVED.
    assert [moved_replies(node) for node in shard.nodes] == before[1]
    assert primary.command_calls("set") - before[0] == 60


async def test_the_primary_serves_no_read_while_replicas_are_up(
    connect: Connector, shard: RedisClusterServers
) -> None:
    """https://github.com/redis/redis-py/issues/3552: the primary unexpectedly in the pool."""
    client = await connect.ours(shard, "latency_based_replicas")
    before = calls(shard.nodes)
    await client.reads(count=100, keys=KEYS)
    spread = since(before, shard.nodes)
    assert spread.pop(shard.primaries[0].endpoint) == 0
    assert sum(spread.values()) == 100
    assert min(spread.values()) > 0


@pytest.mark.parametrize("fault", [killed, frozen])
async def test_the_primary_serves_when_no_replica_does(
    connect: Connector, shard: RedisClusterServers, fault: Any
) -> None:
    """https://github.com/valkey-io/valkey-glide/issues/6929: reads fail with a healthy primary."""
    client = await connect.ours(shard, "latency_based_replicas", socket_timeout=0.3)
    await client.reads(count=20)
    before = calls(shard.primaries)
    down = killed(shard, *shard.replicas) if fault is killed else frozen(*shard.replicas)
    with down:
        log = await client.reads(count=100, keys=KEYS)
        assert log.errors == []
        assert log.values == [KEYS[i % len(KEYS)] for i in range(100)]
        assert sum(since(before, shard.primaries).values()) >= 100


@pytest.mark.parametrize("strategy", library.OFFERED)
async def test_every_strategy_serves(
    connect: Connector, shard: RedisClusterServers, strategy: LoadBalancingStrategy
) -> None:
    for form in (strategy, strategy.value):
        client = await connect.ours(shard, form)
        log = await client.reads(count=len(KEYS), keys=KEYS)
        assert log.values == list(KEYS)
        if client.has_balancer:
            assert client.balancer.strategy is strategy
            assert client.total("picks") == len(KEYS)
            assert_answered(client, len(KEYS))
            assert client.client.endpoint_stats().keys() == {n.endpoint for n in shard.nodes}


async def test_a_policy_of_the_users_own_chooses(
    connect: Connector, shard: RedisClusterServers
) -> None:
    client = await connect.ours(shard, Greatest())
    before = calls(shard.nodes)
    await client.reads(count=20)
    await client.pipeline([("get", key) for key in KEYS[:20]])
    chosen = max(node.endpoint for node in shard.nodes)
    assert since(before, shard.nodes) == {
        node.endpoint: 40 if node.endpoint == chosen else 0 for node in shard.nodes
    }


async def test_a_url_makes_one_of_our_clients(
    connect: Connector, shard: RedisClusterServers
) -> None:
    cls = type((await connect.ours(shard, None)).client)

    def from_url(*, host: str, port: int, **options: Any) -> Any:
        return cls.from_url(f"{library.NAME}://{host}:{port}", **options)

    client = await connect.of(from_url, shard, load_balancing_strategy="hybrid")
    assert isinstance(client.client, cls)
    assert client.balancer.strategy is LoadBalancingStrategy.HYBRID
    assert (await client.reads(count=10)).errors == []


async def test_options_reach_the_balancer(connect: Connector, shard: RedisClusterServers) -> None:
    options = BalancerOptions(decay=3.0)
    client = await connect.ours(shard, "latency_based", balancer_options=options)
    assert client.balancer.options is options


@pytest.mark.parametrize(
    "strategy", ["latency_based", "latency_based_replicas", "hybrid", "boltzmann"]
)
async def test_a_cluster_without_replicas_is_served_by_its_primaries(
    connect: Connector, lonely: RedisClusterServers, strategy: str
) -> None:
    client = await connect.ours(lonely, strategy)
    log = await client.reads(count=len(KEYS), keys=KEYS)
    assert log.values == list(KEYS)
    assert await client.pipeline([("get", key) for key in KEYS]) == list(KEYS)
    assert await client.set("w", "v")
    assert client.total("failures") == client.total("ejections") == 0


@contextlib.contextmanager
def no_replication_pings(servers: RedisClusterServers) -> Iterator[None]:
    """Keep primaries from pinging their replicas, who count that like a client's PING."""
    for node in servers.primaries:
        node.ask("CONFIG", "SET", REPLICATION_PING, 3600)
    try:
        yield
    finally:
        for node in servers.primaries:
            node.ask("CONFIG", "SET", REPLICATION_PING, 10)  # Redis's default


async def test_no_request_is_made_that_nobody_asked_for(
    connect: Connector, shard: RedisClusterServers
) -> None:
    """https://github.com/redis/go-redis/issues/2782: probing alone made 4 million PINGs."""
    client = await connect.ours(shard, "latency_based")
    while any(stats.successes < 5 for stats in client.stats().values()):
        await client.reads(count=30)  # connections are made, with all that takes
    counted = ("get", "ping", "cluster|slots", "cluster|shards", "command")
    with no_replication_pings(shard):
        before = [calls(shard.nodes, command) for command in counted]
        await client.reads(count=200)
        made = [
            sum(since(count, shard.nodes, command).values())
            for command, count in zip(counted, before, strict=True)
        ]
    assert made == [200, 0, 0, 0, 0]
