"""What people do with a client every day gives what the stock client gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bench.servers.redis import RedisClusterServers
from lb_strategies import LoadBalancingStrategy

from . import library
from .drivers import Connector, Driver, SyncDriver
from .nodes import KEYS, calls, fill, settle, since

pytestmark = pytest.mark.integration

OURS = [
    LoadBalancingStrategy.LATENCY_BASED,
    LoadBalancingStrategy.LATENCY_BASED_REPLICAS,
    LoadBalancingStrategy.HYBRID,
    LoadBalancingStrategy.BOLTZMANN,
]
BOTH = ("{t}1", "{t}2")


async def writes(client: Driver) -> list[Any]:
    """Change things; return what the client said."""
    return [
        await client.set("{t}1", "one", ex=1000),
        await client.mset({"{t}2": "two", "{t}3": "3"}),
        await client.incrby("{t}3", 4),
        await client.hset("hash", mapping={"a": "1", "b": "2"}),
        await client.rpush("list", "x", "y"),
        await client.zadd("zset", {"m": 1.5, "n": 2.5}),
        await client.xadd("stream", {"f": "v"}, id="1-1"),
        await client.delete("key:1"),
        await client.delete("key:2", "key:3", "missing"),
        await client.expire("key:4", 1000),
        await client.eval("return redis.call('incr', KEYS[1])", 1, "counter"),
        await client.pipeline([("set", "p1", "1"), ("incr", "p2"), ("incr", "p2")]),
        await client.pipeline(
            [("set", "{t}4", "4"), ("incr", "{t}4")], transaction=library.HAS_TRANSACTIONS
        ),
    ]


async def reads(client: Driver) -> list[Any]:
    """Look at things that `writes` left behind."""
    some = "return {redis.call('get', KEYS[1]), redis.call('hgetall', KEYS[2])}"
    return [
        await client.get("{t}1"),
        await client.get("missing"),
        await client.mget(BOTH),
        await client.mget_nonatomic([*KEYS[:9], "missing"]),
        await client.exists("{t}1"),
        await client.exists("{t}1", "key:1", "key:9"),
        await client.hgetall("hash"),
        await client.lrange("list", 0, -1),
        await client.zrange("zset", 0, -1, withscores=True),
        await client.xread({"stream": "0"}),
        await client.type("zset"),
        await client.dbsize(),
        sorted(await client.collect("scan_iter", match="key:*")),
        sorted(await client.keys("key:1*")),
        await client.eval(some, 2, "{hash}x", "{hash}y"),
        await client.eval_ro("return redis.call('get', KEYS[1])", 1, "{t}2"),
        await client.execute_command("get", "{t}1"),
        await client.execute_command("GET", b"{t}2"),
        await client.execute_command("hget", "hash", "b"),
        await client.execute_command("OBJECT", "ENCODING", "list"),
        await client.pipeline([("get", key) for key in KEYS]),
        await client.pipeline([("hgetall", "hash"), ("lrange", "list", 0, -1), ("strlen", "{t}1")]),
        await client.pipeline(
            [("get", "{t}4"), ("get", "{t}1")], transaction=library.HAS_TRANSACTIONS
        ),
        await client.pipeline([]),
        await client.ping(target_nodes="primaries"),
    ]


async def everything(client: Driver, servers: RedisClusterServers) -> list[Any]:
    fill(servers)
    results = await writes(client)
    settle(servers)
    return results + await reads(client)


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("strategy", OURS)
async def test_results_are_the_stock_clients(
    connect: Connector, shards: RedisClusterServers, strategy: LoadBalancingStrategy, protocol: int
) -> None:
    stock = await connect.stock(shards, protocol=protocol)
    client = await connect.ours(shards, strategy, protocol=protocol)
    assert await everything(client, shards) == await everything(stock, shards)
    assert client.total("failures") == client.total("timeouts") == 0


@pytest.mark.parametrize("decode", [False, True])
async def test_decode_responses_is_respected(
    connect: Connector, shard: RedisClusterServers, decode: bool
) -> None:
    stock = await connect.stock(shard, decode_responses=decode)
    client = await connect.ours(shard, "latency_based", decode_responses=decode)
    expected: object = "key:0" if decode else b"key:0"
    assert await client.get("key:0") == expected
    assert await everything(client, shard) == await everything(stock, shard)


@pytest.mark.parametrize("protocol", [2, 3])
async def test_subscriptions_work_and_are_no_load(
    connect: Connector, shard: RedisClusterServers, protocol: int
) -> None:
    client = await connect.ours(shard, "latency_based", protocol=protocol)
    assert await client.subscribe_and_publish("channel", "hello") == "hello"
    assert client.total("in_flight") == client.total("failures") == 0


@library.with_transactions
@pytest.mark.parametrize("mode", ["sync"], indirect=True)  # asyncio's runs a loop in a thread
async def test_watch_aborts_a_transaction_that_lost_a_race(
    connect: Connector, shard: RedisClusterServers
) -> None:
    client = await connect.ours(shard, "latency_based")
    assert isinstance(client, SyncDriver)
    with client.client.pipeline(transaction=True) as pipe:
        pipe.watch("key:0")
        assert pipe.get("key:0") == "key:0"
        pipe.multi()
        pipe.set("key:0", "ours")
        client.client.set("key:0", "theirs")
        with pytest.raises(library.errors.WatchError):
            pipe.execute()
    primaries = client.client.get_primaries()
    assert client.client.execute_command("GET", "key:0", target_nodes=primaries) == "theirs"
    with client.client.pipeline(transaction=True) as pipe:
        pipe.watch("key:0")
        pipe.multi()
        pipe.append("key:0", "+ours")
        assert pipe.execute() == [len("theirs+ours")]


@library.with_transactions
async def test_a_transaction_function_is_retried_and_returns(
    connect: Connector, shard: RedisClusterServers
) -> None:
    client = await connect.ours(shard, "latency_based")

    def add(pipe: Any) -> None:
        pipe.multi()
        pipe.incr("counter")

    async def add_async(pipe: Any) -> None:
        add(pipe)

    function = add if client.mode == "sync" else add_async
    assert await client.transaction(function, "counter") == [1]


async def test_errors_are_the_stock_clients(connect: Connector, shard: RedisClusterServers) -> None:
    mistakes: list[tuple[Any, ...]] = [
        ("hgetall", "key:0"),
        ("execute_command", "NOSUCHCOMMAND", "key:0"),
        ("execute_command", "GET"),
        ("evalsha", "0" * 40, 1, "key:0"),
        ("mget", ["key:0", "key:1"]),
    ]
    seen = []
    for client in (
        await connect.stock(shard),
        await connect.ours(shard, "latency_based"),
    ):
        errors: list[Any] = []
        for method, *args in mistakes:
            try:
                errors.append(await client.call(method, *args))
            except Exception as error:
                errors.append((type(error), str(error)))
        seen.append(errors)
    assert seen[0] == seen[1]


async def test_target_nodes_override_the_strategy(
    connect: Connector, shard: RedisClusterServers
) -> None:
    """https://github.com/redis/redis-py/issues/3591 asks for strong reads for some calls."""
    client = await connect.ours(shard, "latency_based_replicas")
    primary = shard.primaries[0]
    before = primary.command_calls("get")
    for _ in range(20):
        value = await client.execute_command(
            "GET", "key:0", target_nodes=client.client.get_primaries()
        )
        assert value == "key:0"
    assert primary.command_calls("get") - before == 20


READ_PATHS: dict[str, Callable[[Driver], Awaitable[Any]]] = {
    "method": lambda client: client.get("key:0"),
    "raw command": lambda client: client.execute_command("GET", "key:0"),
    "lower-case command": lambda client: client.execute_command("get", "key:0"),
    "bytes key": lambda client: client.execute_command("GET", b"key:0"),
    "several keys": lambda client: client.mget(BOTH),
    "mget_nonatomic": lambda client: client.mget_nonatomic(KEYS[:4]),
    "exists": lambda client: client.exists(*BOTH),
    "scan of a hash": lambda client: client.hscan("hash"),
    "read-only script": lambda client: client.eval_ro("return redis.call('get', KEYS[1])", 1, "a"),
    "pipeline": lambda client: client.pipeline([("get", key) for key in KEYS[:4]]),
}
COMMANDS = ("get", "mget", "exists", "hscan", "eval_ro")


@pytest.mark.parametrize("path", READ_PATHS)
async def test_every_read_path_follows_the_strategy(
    connect: Connector, shard: RedisClusterServers, path: str
) -> None:
    """https://github.com/Grokzen/redis-py-cluster/issues/400 and mget_nonatomic of redis-py."""
    if path == "scan of a hash" and "HSCAN" not in library.READS:
        pytest.skip(f"{library.TITLE} does not list HSCAN as a read")
    client = await connect.ours(shard, "latency_based_replicas")
    before = [calls(shard.nodes, command) for command in COMMANDS]
    for _ in range(4):
        await READ_PATHS[path](client)
    spread: Counter[str] = Counter()
    for command, count in zip(COMMANDS, before, strict=True):
        spread.update(since(count, shard.nodes, command))
    assert spread[shard.primaries[0].endpoint] == 0
    assert sum(spread.values()) >= 4
