"""Pipelines: one choice and one sample for each node; transactions: load, and no sample."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Sequence
from typing import Any

import pytest

from bench.servers.redis import RedisClusterServers
from lb_strategies import EndpointStats

from . import library
from .drivers import Connector, Driver, assert_answered
from .nodes import KEYS, calls, frozen, owner, since
from .policies import Greatest

pytestmark = pytest.mark.integration

GETS = [("get", key) for key in KEYS]
STALL = 0.4
"""Seconds that one server is silent."""


def difference(before: dict[str, EndpointStats], after: dict[str, EndpointStats]) -> dict[str, int]:
    """Return how many picks each endpoint got in between, leaving out those with none."""
    new = {endpoint: after[endpoint].picks - before[endpoint].picks for endpoint in before}
    return {endpoint: count for endpoint, count in new.items() if count}


def keep_busy(seconds: float) -> None:
    """Keep the event loop from running."""
    time.sleep(seconds)


async def stall_during(client: Driver, nodes: Sequence[Any], commands: Any, **options: Any) -> Any:
    """Run a pipeline of which a part is answered only after `STALL` seconds.

    Returns:
        The results, and the statistics while it waited.
    """
    with frozen(*nodes):
        running = asyncio.ensure_future(client.pipeline(commands, **options))
        await asyncio.sleep(STALL)
        waiting = client.stats()
    return await running, waiting


@pytest.mark.parametrize("strategy", ["latency_based", "latency_based_replicas", "hybrid"])
async def test_one_choice_for_each_shard_and_pipeline(
    connect: Connector, shards: RedisClusterServers, strategy: str
) -> None:
    """https://github.com/redis/redis-py/pull/4212: one sample for each node's part."""
    client = await connect.ours(shards, strategy)
    served = set()
    of_shard = [[n, r] for n, r in zip(shards.primaries, shards.replicas, strict=True)]
    for _ in range(12):
        before = client.stats(), calls(shards.nodes)
        assert await client.pipeline(GETS) == list(KEYS)
        spread = since(before[1], shards.nodes)
        chosen = {endpoint for endpoint, count in spread.items() if count}
        assert difference(before[0], client.stats()) == dict.fromkeys(chosen, 1)
        assert sum(spread.values()) == len(KEYS)
        for nodes in of_shard:
            # All of a shard's reads went to one node.
            assert len(chosen & {node.endpoint for node in nodes}) == 1
        served |= chosen
    expected = shards.replicas if strategy == "latency_based_replicas" else shards.nodes
    assert served == {node.endpoint for node in expected}
    # redis-py reads one node after another: replies that have been waiting are no sample.
    assert client.total("successes") <= 24
    if client.mode == "asyncio":
        assert_answered(client, 24)


async def test_a_pipeline_is_one_sample(connect: Connector, shard: RedisClusterServers) -> None:
    client = await connect.ours(shard, "latency_based")
    for _ in range(10):
        assert await client.pipeline(GETS) == list(KEYS)
    assert client.total("picks") == 10
    assert_answered(client, 10)


async def test_reads_go_together_and_writes_to_the_primary(
    connect: Connector, shard: RedisClusterServers
) -> None:
    client = await connect.ours(shard, "latency_based_replicas")
    before = calls(shard.nodes), client.stats(), shard.primaries[0].command_calls("incrby")
    for i in range(5):
        commands = [("get", "key:0"), ("incr", "n"), ("get", "key:1"), ("incr", "n")]
        expected = ["key:0", 2 * i + 1, "key:1", 2 * i + 2]
        assert await client.pipeline(commands) == expected
    spread = since(before[0], shard.nodes)
    assert spread.pop(shard.primaries[0].endpoint) == 0
    assert sorted(n % 2 for n in spread.values()) == [0, 0]
    assert shard.primaries[0].command_calls("incrby") - before[2] == 10
    # Where a write goes is nobody's choice.
    assert sum(difference(before[1], client.stats()).values()) == 5


@pytest.mark.alone
@pytest.mark.parametrize("first", [True, False])
async def test_a_stalled_node_does_not_make_the_others_look_slow(
    connect: Connector, lonely: RedisClusterServers, first: bool
) -> None:
    """Research P2: one node stalled for 0.2 s made all three look like 0.17 s."""
    client = await connect.ours(lonely, "latency_based")
    for _ in range(10):
        for node in lonely.nodes:  # one after another, so that each is a sample
            alone = [key for key in KEYS if owner(lonely, key) is node]
            assert await client.pipeline([("get", key) for key in alone]) == alone
    # redis-py reads the nodes in the order of their first commands.
    leading = owner(lonely, GETS[0][1])
    sick, well = sorted(lonely.nodes, key=lambda node: (node is leading) != first)
    results, waiting = await stall_during(client, [sick], GETS)
    stats = client.stats()
    assert results == list(KEYS)
    assert waiting[sick.endpoint].in_flight == 1
    # Poisoned, both would have the same; a class of another size may scale each a little.
    assert stats[sick.endpoint].peak_rtt > 10 * stats[well.endpoint].peak_rtt
    assert stats[well.endpoint].timeouts == stats[well.endpoint].failures == 0


@library.with_transactions
async def test_a_transaction_is_load_and_no_sample(
    connect: Connector, shard: RedisClusterServers
) -> None:
    """https://github.com/redis/redis-py/pull/4323: batch durations are not comparable."""
    client = await connect.ours(shard, "latency_based")
    await client.reads(count=60)
    primary = shard.primaries[0]
    before = client.stats()
    commands = [("set", "{t}1", "v"), ("get", "{t}1")]
    for _ in range(10):
        await client.pipeline(commands, transaction=True)
    _, waiting = await stall_during(client, [primary], commands, transaction=True)
    after = client.stats()
    assert waiting[primary.endpoint].in_flight == 1
    assert {e: s.mean_rtt for e, s in after.items()} == {e: s.mean_rtt for e, s in before.items()}
    expected = {e: s.successes for e, s in before.items()}
    expected[primary.endpoint] += 11  # it answered, which ends a row of failures
    assert {e: s.successes for e, s in after.items()} == expected
    assert client.total("in_flight") == client.total("failures") == 0
    assert difference(before, after) == {}


@pytest.mark.parametrize("transaction", library.EITHER_PIPELINE)
async def test_errors_in_a_pipeline_are_where_the_stock_client_puts_them(
    connect: Connector, shard: RedisClusterServers, transaction: bool
) -> None:
    commands = [("set", "{e}1", "v"), ("lpush", "{e}1", "x"), ("get", "{e}1")]
    seen = []
    for client in (await connect.stock(shard), await connect.ours(shard, "latency_based")):
        await client.set("{e}1", "v")
        results = await client.pipeline(commands, transaction=transaction, raise_on_error=False)
        with pytest.raises(library.errors.ResponseError) as caught:
            await client.pipeline(commands, transaction=transaction)
        seen.append((results[0], type(results[1]), type(caught.value), str(caught.value)))
    assert seen[0] == seen[1]
    assert seen[1][1] is library.errors.ResponseError
    assert client.total("failures") == client.total("in_flight") == 0


async def test_a_wrong_type_in_a_pipeline_of_reads_is_no_failure(
    connect: Connector, shard: RedisClusterServers
) -> None:
    client = await connect.ours(shard, "latency_based")
    results = await client.pipeline(
        [("get", "key:0"), ("lrange", "key:1", 0, 1), ("get", "key:2")], raise_on_error=False
    )
    assert [results[0], results[2]] == ["key:0", "key:2"]
    assert type(results[1]) is library.errors.ResponseError
    assert client.total("failures") == 0
    assert_answered(client, 1)


async def test_no_command_gets_the_reply_of_another_after_a_time_out(
    connect: Connector, shard: RedisClusterServers
) -> None:
    """redis-py 8.1, asyncio and RESP3, with any strategy: each got the value of the one before."""
    client = await connect.ours(shard, "latency_based", socket_timeout=STALL)
    assert await client.pipeline(GETS) == list(KEYS)
    with frozen(*shard.nodes):
        running = asyncio.ensure_future(client.pipeline(GETS, raise_on_error=False))
        await asyncio.sleep(STALL / 2)
        for node in shard.nodes:
            node.resume()
        keep_busy(STALL)  # so that the loop sees the replies and the end of their time at once
    assert await running == list(KEYS)


async def test_a_pipeline_asks_each_node_of_a_dead_shard_once_and_not_for_every_command(
    shards: RedisClusterServers,
) -> None:
    """The stock asyncio client does not run commands again that met a time-out.

    Its synchronous one does, each as often as `retry` says; that is left as it is.
    """
    connect = Connector("asyncio")
    try:
        client = await connect.ours(
            shards, "latency_based", socket_timeout=0.2, **connect.retries(1)
        )
        dead = [shards.primaries[0], shards.replicas[0]]
        keys = [key for key in KEYS if owner(shards, key) is dead[0]][:8]
        commands = [("get", key) for key in keys]
        assert await client.pipeline(commands) == keys
        with frozen(*dead):
            results = await client.pipeline(commands, raise_on_error=False)
            assert [type(result) for result in results] == [library.errors.TimeoutError] * len(keys)
            assert client.total("timeouts") == len(dead)
            with pytest.raises(library.errors.TimeoutError):
                await client.pipeline(commands)
            assert client.total("timeouts") <= 3 * len(dead)
        assert await client.pipeline(commands) == keys
    finally:
        await connect.close()


@pytest.mark.parametrize("dead", [0, 1])
async def test_a_dead_shard_takes_no_other_shard_along(
    connect: Connector, shards: RedisClusterServers, dead: int
) -> None:
    """A refresh asks the first primary for its COMMANDs: it must not be one that is dead."""
    client = await connect.ours(shards, "latency_based", socket_timeout=0.2, **connect.retries(0))
    keys = {node.port: [k for k in KEYS if owner(shards, k) is node] for node in shards.primaries}
    lost, kept = keys[shards.primaries[dead].port], keys[shards.primaries[1 - dead].port]
    assert (await client.reads(count=20, keys=kept)).errors == []
    with frozen(shards.primaries[dead], shards.replicas[dead]):
        with contextlib.suppress(
            library.errors.TimeoutError
        ):  # raised at once by the synchronous one
            results = await client.pipeline([("get", key) for key in lost], raise_on_error=False)
            assert {type(result) for result in results} == {library.errors.TimeoutError}
        log = await client.reads(count=20, keys=kept)
    assert log.errors == []


async def test_a_pipeline_that_cannot_connect_goes_to_another_node(
    connect: Connector, shard: RedisClusterServers
) -> None:
    """The synchronous one fails as a whole then, and is run again by redis-py."""
    client = await connect.ours(shard, Greatest(), socket_timeout=0.3, **connect.retries(1))
    sick = max(shard.nodes, key=lambda node: node.endpoint)
    with frozen(sick):
        assert await client.pipeline([("get", "key:0"), ("get", "key:1")]) == ["key:0", "key:1"]
    assert client.stats()[sick.endpoint].timeouts == 1


async def test_a_pipeline_can_be_used_again(
    connect: Connector, shards: RedisClusterServers
) -> None:
    client = await connect.ours(shards, "latency_based")
    pipe = client.client.pipeline()

    def execute() -> Any:
        return asyncio.to_thread(pipe.execute) if client.mode == "sync" else pipe.execute()

    for _ in range(3):
        for key in KEYS[:10]:
            pipe.get(key)
        assert await execute() == list(KEYS[:10])
        assert await execute() == []
    assert client.total("in_flight") == 0


async def test_refreshes_of_the_topology_lose_no_pipeline(
    connect: Connector, shards: RedisClusterServers
) -> None:
    """https://github.com/redis/redis-py/pull/4323: churn must not leave requests in flight."""
    client = await connect.ours(shards, "latency_based")
    done = asyncio.Event()

    async def refresh() -> None:
        while not done.is_set():
            if client.mode == "sync":
                await asyncio.to_thread(client.client.nodes_manager.initialize)
            else:
                await client.client.nodes_manager.initialize()

    refreshing = [asyncio.ensure_future(refresh()) for _ in range(2)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # so that refreshes come while commands are sorted by node
    try:
        for _ in range(40):
            running = (client.pipeline(GETS) for _ in range(3))
            assert await asyncio.gather(*running) == [list(KEYS)] * 3
    finally:
        sys.setswitchinterval(interval)
        done.set()
        await asyncio.gather(*refreshing)
    assert {e: s.in_flight for e, s in client.stats().items() if s.in_flight} == {}


async def test_a_pipeline_that_is_not_executed_is_no_load(
    connect: Connector, shards: RedisClusterServers
) -> None:
    client = await connect.ours(shards, "latency_based")
    pipe = client.client.pipeline()
    pipe.get("key:0")
    assert client.total("in_flight") == client.total("picks") == 0
    del pipe
    assert owner(shards, "key:0") in shards.primaries
