"""MOVED and ASK: the answer is right, and only the node that gave it is judged by it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from redis.crc import key_slot

from bench.servers.redis import RedisClusterServers, RedisNode

from . import library
from .drivers import Connector, Driver, assert_answered
from .nodes import (
    ahead_of_its_slot,
    fill,
    is_primary,
    move,
    moved_replies,
    owner,
    settle,
    swap,
)
from .policies import Always

pytestmark = pytest.mark.integration

KEY = "{moving}0"
OTHER = "{moving}1"


def the_other(servers: RedisClusterServers, node: RedisNode) -> RedisNode:
    """Return the primary that is not `node`."""
    return next(other for other in servers.primaries if other is not node)


async def prepared(connect: Connector, servers: RedisClusterServers, strategy: str) -> Driver:
    """Return a client that knows every node's latency, with one connection to each."""
    client = await connect.ours(servers, strategy)
    await client.set(KEY, "value")
    settle(servers)
    for i in range(32):
        await client.get(f"key:{i}")
    await client.get(KEY)
    return client


@pytest.mark.parametrize("strategy", ["latency_based", "hybrid"])
async def test_moved_reads_and_writes_are_answered(
    connect: Connector, lonely: RedisClusterServers, strategy: str
) -> None:
    source = owner(lonely, KEY)
    target = the_other(lonely, source)
    client = await prepared(connect, lonely, strategy)
    before = client.stats()
    move(lonely, KEY, source, target)
    assert await client.get(KEY) == "value"
    after = client.stats()
    assert moved_replies(source) > 0
    # What was asked of the source taught nothing about it.
    assert after[source.endpoint].mean_rtt == before[source.endpoint].mean_rtt
    assert after[source.endpoint].successes == before[source.endpoint].successes
    known = before[target.endpoint].successes
    assert_answered(client, 1, before=known, endpoint=target.endpoint)
    assert client.total("failures") == client.total("in_flight") == 0

    served = target.command_calls("get")
    assert await client.get(KEY) == "value"  # the slot is known now: no second redirect
    assert target.command_calls("get") == served + 1

    move(lonely, KEY, target, source)
    assert await client.set(KEY, "new")
    assert await client.get(KEY) == "new"
    assert client.total("failures") == client.total("in_flight") == 0


async def test_moved_in_a_pipeline_is_answered(
    connect: Connector, lonely: RedisClusterServers
) -> None:
    source = owner(lonely, KEY)
    target = the_other(lonely, source)
    client = await prepared(connect, lonely, "latency_based")
    commands = [("get", KEY), *(("get", f"key:{i}") for i in range(16)), ("get", OTHER)]
    expected = ["value", *(f"key:{i}" for i in range(16)), None]
    assert await client.pipeline(commands) == expected
    move(lonely, KEY, source, target)
    assert await client.pipeline(commands) == expected
    assert await client.pipeline([("set", OTHER, "o"), ("get", KEY)]) == [True, "value"]
    move(lonely, KEY, target, source)
    assert await client.pipeline([("incr", "{moving}n"), ("get", KEY)]) == [1, "value"]
    assert client.total("failures") == client.total("in_flight") == 0


async def test_moved_with_replicas_ends_at_the_new_shard(
    connect: Connector, shards: RedisClusterServers
) -> None:
    source = owner(shards, KEY)
    target = the_other(shards, source)
    client = await prepared(connect, shards, "latency_based")
    move(shards, KEY, source, target)
    settle(shards)
    try:
        before = {node.endpoint: node.command_calls("get") for node in shards.nodes}
        for _ in range(20):
            assert await client.get(KEY) == "value"
        served = {n.endpoint: n.command_calls("get") - before[n.endpoint] for n in shards.nodes}
        assert served[target.endpoint] > 0
        assert client.total("failures") == client.total("in_flight") == 0
    finally:
        move(shards, KEY, target, source)


async def test_ask_is_followed_for_that_one_command(
    connect: Connector, lonely: RedisClusterServers
) -> None:
    source = owner(lonely, KEY)
    target = the_other(lonely, source)
    client = await prepared(connect, lonely, "latency_based")
    await client.set(OTHER, "stays")
    before = client.stats()
    with ahead_of_its_slot(KEY, source, target):
        for _ in range(5):
            assert await client.get(KEY) == "value"
        after = client.stats()
        assert await client.get(OTHER) == "stays"
        assert await client.set(KEY, "changed")
        assert await client.get(KEY) == "changed"
    assert after[source.endpoint].mean_rtt == before[source.endpoint].mean_rtt
    assert after[source.endpoint].successes == before[source.endpoint].successes
    known = before[target.endpoint].successes
    assert known < after[target.endpoint].successes <= known + 5
    assert client.total("failures") == client.total("in_flight") == 0
    assert await client.get(KEY) is None  # the slot is where it was


async def test_ask_in_a_pipeline_is_followed(
    connect: Connector, lonely: RedisClusterServers
) -> None:
    source = owner(lonely, KEY)
    target = the_other(lonely, source)
    client = await prepared(connect, lonely, "latency_based")
    await client.set(OTHER, "stays")
    with ahead_of_its_slot(KEY, source, target):
        results = await client.pipeline([("get", OTHER), ("get", KEY)])
    assert results == ["stays", "value"]
    assert client.total("failures") == client.total("in_flight") == 0


@pytest.mark.parametrize("command", ["mget", "mget_nonatomic"])
async def test_keys_of_one_slot_that_are_apart_are_refused_until_they_are_together(
    connect: Connector, lonely: RedisClusterServers, command: str
) -> None:
    """While one of them has moved the servers say TRYAGAIN; redis-py does, for 0.4 s."""
    source = owner(lonely, KEY)
    target = the_other(lonely, source)
    client = await prepared(connect, lonely, "latency_based")
    await client.set(OTHER, "stays")
    with ahead_of_its_slot(KEY, source, target):
        for each in (client, await connect.stock(lonely)):
            with pytest.raises(library.errors.ClusterError, match="TTL exhausted"):
                await each.call(command, [KEY, OTHER])
    assert await client.call(command, [KEY, OTHER]) == [None, "stays"]
    assert client.total("failures") == client.total("in_flight") == 0


@pytest.fixture(scope="module")
def changing() -> Iterator[RedisClusterServers]:
    """Servers that swap their roles."""
    with RedisClusterServers(primaries=1, replicas=2, node_timeout=1) as servers:
        fill(servers)
        yield servers


async def test_reads_and_writes_survive_a_failover(
    connect: Connector, changing: RedisClusterServers
) -> None:
    nodes = changing.nodes
    before = next(node for node in nodes if is_primary(node))
    after = next(node for node in nodes if not is_primary(node))
    client = await connect.ours(changing, "latency_based")
    await client.reads(count=30)
    swap(nodes, before, after)
    for i in range(20):
        assert await client.set("w", str(i))
        assert await client.get("key:0") == "key:0"
    assert client.total("in_flight") == client.total("failures") == 0
    served = after.command_calls("set")
    await client.set("w", "last")
    assert after.command_calls("set") == served + 1
    settle(changing)
    # The new primary is a replica's peer now, and the strategy knows which is which.
    replicas_only = await connect.ours(changing, "latency_based_replicas")
    count = after.command_calls("get")
    assert (await replicas_only.reads(count=30)).errors == []
    assert after.command_calls("get") == count


async def test_replicas_only_follows_the_roles_through_a_failover(
    connect: Connector, changing: RedisClusterServers
) -> None:
    """A MOVED tells the client of the failover; from then on the old primary may be read."""
    nodes = changing.nodes
    before = next(node for node in nodes if is_primary(node))
    after = next(node for node in nodes if not is_primary(node))
    client = await connect.ours(changing, "latency_based_replicas")
    await client.set("key:0", "key:0")
    settle(changing)
    await client.reads(count=30)
    swap(nodes, before, after)
    await client.set("w", "v")  # MOVED
    served = after.command_calls("get"), before.command_calls("get")
    log = await client.reads(count=100, pause=0.002)
    assert log.errors == []
    assert after.command_calls("get") == served[0]
    assert before.command_calls("get") > served[1]


async def test_a_moved_read_goes_where_it_was_told_whatever_the_policy_prefers(
    connect: Connector, shard: RedisClusterServers
) -> None:
    """Choosing anew could find the node that has just sent it away, again and again."""
    odd = shard.replicas[0]
    client = await connect.ours(shard, Always(odd.endpoint))
    await client.reads(count=5)
    node = client.client.get_node(host=odd.host, port=odd.port)
    await client.execute_command("READWRITE", target_nodes=node)  # it answers no more reads
    before = moved_replies(odd)
    log = await client.reads(count=20)
    assert log.errors == []
    assert log.values == ["key:0"] * 20
    assert moved_replies(odd) > before
    assert client.total("in_flight") == 0


async def test_a_moved_to_the_primary_that_is_known_drops_no_replica(
    connect: Connector, shard: RedisClusterServers
) -> None:
    """redis-py 5.3 and 6.4 list the primary twice then, in the place of a replica."""
    client = await connect.ours(shard, "latency_based")
    await client.reads(count=20)
    odd = shard.replicas[0]
    node = client.client.get_node(host=odd.host, port=odd.port)
    await client.execute_command("READWRITE", target_nodes=node)  # it answers no more reads
    before = moved_replies(odd)
    end = time.monotonic() + 15
    while moved_replies(odd) == before and time.monotonic() < end:
        log = await client.reads(count=20)
        assert log.errors == []
        assert log.values == ["key:0"] * 20
    assert moved_replies(odd) > before
    nodes = client.client.nodes_manager.slots_cache[key_slot(b"key:0")]
    assert sorted(node.name for node in nodes) == sorted(node.endpoint for node in shard.nodes)
