"""Which commands are reads, and reads that must go to the primary."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bench.servers.redis import RedisClusterServers
from lb_strategies_redis import use_strategy

from . import library
from .drivers import Connector, Driver
from .nodes import KEYS, calls, settle, since

pytestmark = pytest.mark.integration

ADDED = ("pfcount", "TOUCH")
"""Reads that redis-py 8.1 does not know as such."""


async def served(
    client: Driver, servers: RedisClusterServers, command: str, *args: Any, times: int = 20
) -> list[int]:
    """Run a command `times` times; return how many of them each server got, primary first."""
    before = calls(servers.nodes, command)
    for _ in range(times):
        await client.execute_command(command.upper(), *args)
    return list(since(before, servers.nodes, command).values())


@pytest.mark.parametrize("command", ["pfcount", "touch", "TOUCH"])
async def test_added_reads_are_spread(
    connect: Connector, shard: RedisClusterServers, command: str
) -> None:
    """https://github.com/redis/redis-py/issues/2490: reads that redis-py does not list."""
    usual = await connect.ours(shard, "latency_based_replicas")
    added = await connect.ours(shard, "latency_based_replicas", read_commands=ADDED)
    await usual.pfadd("log", "a", "b")
    await usual.pfcount("log")  # the first one is replicated: it caches what it counts
    settle(shard)
    name = command.lower()
    assert await served(usual, shard, name, "log") == [20, 0, 0]
    primary, *replicas = await served(added, shard, name, "log")
    assert primary == 0
    assert min(replicas) > 0
    assert sum(replicas) == 20


async def test_added_reads_in_pipelines(connect: Connector, shard: RedisClusterServers) -> None:
    client = await connect.ours(shard, "latency_based_replicas", read_commands=["touch"])
    before = calls(shard.nodes, "touch")
    commands = [("execute_command", "TOUCH", key) for key in KEYS]
    for _ in range(12):
        assert await client.pipeline(commands) == [1] * len(KEYS)
    primary, *replicas = since(before, shard.nodes, "touch").values()
    assert primary == 0
    assert min(replicas) >= len(KEYS)
    assert sum(replicas) == 12 * len(KEYS)
    assert client.total("successes") > 0  # only reads: each was a sample


async def test_scripts_go_to_the_primary_and_their_read_only_forms_do_not(
    connect: Connector, shard: RedisClusterServers
) -> None:
    client = await connect.ours(shard, "latency_based_replicas")
    script = "return redis.call('GET', KEYS[1])"
    assert await served(client, shard, "eval", script, 1, "key:0") == [20, 0, 0]
    primary, *replicas = await served(client, shard, "eval_ro", script, 1, "key:0")
    assert primary == 0
    assert sum(replicas) == 20


async def test_what_the_server_calls_a_write_is_no_read(
    connect: Connector, shard: RedisClusterServers
) -> None:
    with pytest.raises(ValueError, match="read_commands has 'SET', which the server calls a write"):
        await connect.ours(shard, "latency_based", read_commands=["TOUCH", "set"])


async def test_a_client_that_is_refused_its_reads_stays_as_it_was(
    connect: Connector, shard: RedisClusterServers
) -> None:
    client = await connect.stock(shard)
    await client.get("key:0")
    cls = type(client.client)
    with pytest.raises(ValueError, match="'SET'"):
        use_strategy(client.client, "latency_based", read_commands=["SET"])
    assert type(client.client) is cls
    assert library.chosen_by(client.client) is None
    assert await client.get("key:0") == "key:0"


@pytest.mark.parametrize(
    ("names", "error", "message"),
    [
        ("TOUCH", TypeError, "read_commands must be several names, got 'TOUCH'"),
        (7, TypeError, "read_commands must be several names, got 7"),
        ([b"TOUCH"], TypeError, "read_commands must hold strings, got b'TOUCH'"),
        ([" "], ValueError, "read_commands must hold names of commands, got ' '"),
    ],
)
async def test_names_are_checked(
    connect: Connector, shard: RedisClusterServers, names: Any, error: Any, message: str
) -> None:
    with pytest.raises(error, match=message):
        await connect.ours(shard, "latency_based", read_commands=names)


@pytest.mark.parametrize("strategy", [None, "round_robin"])
async def test_added_reads_need_a_strategy_of_ours(
    connect: Connector, shard: RedisClusterServers, strategy: str | None
) -> None:
    with pytest.raises(ValueError, match="read_commands has no effect"):
        await connect.ours(shard, strategy, read_commands=["TOUCH"])


async def test_reads_can_be_sent_to_the_primary(
    connect: Connector, shard: RedisClusterServers
) -> None:
    """https://github.com/redis/redis-py/issues/3591: without a second client."""
    client = await connect.ours(shard, "latency_based_replicas")
    other = await connect.ours(shard, "latency_based_replicas")
    with client.client.primary_reads():
        assert await served(client, shard, "get", "key:0") == [20, 0, 0]
        with client.client.primary_reads():
            assert await served(client, shard, "get", "key:0") == [20, 0, 0]
        before = calls(shard.nodes)
        assert await client.pipeline([("get", key) for key in KEYS]) == list(KEYS)
        assert await client.mget_nonatomic(KEYS) == list(KEYS)
        assert next(iter(since(before, shard.nodes).values())) == len(KEYS)
        assert (await served(other, shard, "get", "key:0"))[0] == 0
    assert (await served(client, shard, "get", "key:0"))[0] == 0


async def test_reads_at_the_primary_hold_for_the_block_and_not_beside_it(
    connect: Connector, shard: RedisClusterServers
) -> None:
    client = await connect.ours(shard, "latency_based_replicas")
    inside, outside = asyncio.Event(), asyncio.Event()

    async def pinned() -> None:
        with client.client.primary_reads():
            inside.set()
            await outside.wait()
            await client.touch("key:0")  # any command: still inside

    running = asyncio.ensure_future(pinned())
    await inside.wait()
    assert (await served(client, shard, "get", "key:0"))[0] == 0
    outside.set()
    await running


async def test_an_opted_in_client_can_read_from_the_primary(
    connect: Connector, shard: RedisClusterServers
) -> None:
    client = await connect.stock(shard)
    client.balancer = use_strategy(client.client, "latency_based_replicas")
    assert client.client.load_balancer is client.balancer
    with client.client.primary_reads():
        assert await served(client, shard, "get", "key:0") == [20, 0, 0]


async def test_a_strategy_of_the_library_itself_cannot_be_overridden(
    connect: Connector, shard: RedisClusterServers
) -> None:
    client = await connect.ours(shard, "round_robin")
    with pytest.raises(ValueError, match=r"primary_reads\(\) needs one of our strategies"):
        client.client.primary_reads().__enter__()
    without = await connect.ours(shard, None)
    with without.client.primary_reads():
        assert await served(without, shard, "get", "key:0") == [20, 0, 0]


async def test_a_read_that_waits_is_known_in_small_letters_too(
    connect: Connector, shard: RedisClusterServers
) -> None:
    """Research P1: XREAD BLOCK 400 looked like 423 ms; an idle reader would repel all reads."""
    client = await connect.ours(shard, "latency_based")
    await client.reads(count=30)
    before = client.mean_rtts(), client.total("successes")
    running = asyncio.ensure_future(
        client.execute_command("xread", "BLOCK", 400, "STREAMS", "stream", "$")
    )
    await asyncio.sleep(0.2)
    assert client.total("in_flight") == 0
    assert not await running
    assert (client.mean_rtts(), client.total("successes")) == before


async def test_a_pipeline_with_a_read_that_waits_is_no_sample(
    connect: Connector, shard: RedisClusterServers
) -> None:
    client = await connect.ours(shard, "latency_based")
    await client.reads(count=30)
    before = client.mean_rtts()
    results = await client.pipeline(
        [("get", "key:0"), ("execute_command", "XREAD", "BLOCK", 200, "STREAMS", "stream", "$")]
    )
    assert results[0] == "key:0"
    assert client.mean_rtts() == before
    assert client.total("in_flight") == 0
