"""A strategy is opt-in: without one of ours, and on every other client, redis-py is untouched."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from bench.servers.redis import RedisClusterServers
from lb_strategies import LoadBalancingStrategy
from lb_strategies_redis import use_strategy

from . import library
from .drivers import Connector
from .nodes import KEYS, calls, since

pytestmark = pytest.mark.integration

UPSTREAMS_OWN = [
    pytest.param(None, id="None"),
    *(
        pytest.param(form, id=f"{kind}-{value}")
        for value in library.OWN
        for kind, form in {
            "upstream": library.member(value),
            "string": value,
            "ours": LoadBalancingStrategy(value),
        }.items()
        if form is not None
    ),
]
ADDED = {"__init__", "load_balancer", "endpoint_stats", "primary_reads"}
MACHINERY = {
    *("__doc__", "__module__", "__dict__", "__weakref__", "__slots__", "__annotations__"),
    *("_abc_impl", "__abstractmethods__", "__subclasshook__"),
}
"""What every class has of its own."""


def methods(cls: type) -> dict[str, object]:
    """Return what an instance of `cls` finds by each name, in all its bases."""
    return {name: inspect.getattr_static(cls, name) for name in dir(cls) if name not in MACHINERY}


def nodes_of(client: Any) -> Iterator[Any]:
    manager = client.nodes_manager
    yield from manager.nodes_cache.values()
    yield from manager.startup_nodes.values()


@pytest.mark.parametrize("strategy", UPSTREAMS_OWN)
async def test_everything_is_upstreams_own(
    connect: Connector, shard: RedisClusterServers, strategy: Any
) -> None:
    driver = await connect.ours(shard, strategy)
    client = driver.client
    module = library.cluster if driver.mode == "sync" else library.aio_cluster

    assert type(client) is library.OURS[driver.mode]
    upstream = methods(connect.stock_class)
    found = methods(type(client))
    assert found.keys() - upstream.keys() <= ADDED
    assert {name for name in upstream if found[name] is not upstream[name]} == {"__init__"}
    assert not vars(client).keys() & upstream.keys()  # nor is one hidden on the object itself
    assert client.load_balancer is None
    assert client.endpoint_stats() == {}

    expected = None if strategy is None else getattr(strategy, "value", strategy)
    assert library.chosen_by(client) == expected

    assert await driver.get("key:0") == "key:0"
    assert type(client.nodes_manager) is module.NodesManager
    assert type(client.nodes_manager.read_load_balancer) is library.cluster.LoadBalancer
    for node in nodes_of(client):
        assert type(node) is module.ClusterNode
        if driver.mode == "asyncio":
            connection = library.aio_connection.Connection
            assert {type(c) for c in node._connections} <= {connection}
        elif library.node_client(node) is not None:
            pool = library.node_client(node).connection_pool
            connection = library.connection.Connection
            assert pool.connection_class is connection
            assert {type(c) for c in pool._available_connections} <= {connection}

    pipe = client.pipeline()
    assert type(pipe) is module.ClusterPipeline
    if hasattr(module, "PipelineStrategy"):
        assert type(pipe._execution_strategy) is module.PipelineStrategy


@pytest.mark.parametrize("strategy", [None, library.REPLICAS_ONLY or "round_robin"])
async def test_reads_go_where_the_stock_client_sends_them(
    connect: Connector, shard: RedisClusterServers, strategy: str | None
) -> None:
    client = await connect.ours(shard, strategy)
    before = calls(shard.nodes)
    await client.reads(count=60)
    primary = shard.primaries[0].endpoint
    each, rest = {None: (0, 60), "round_robin": (20, 20), "round_robin_replicas": (30, 0)}[strategy]
    expected = {node.endpoint: each for node in shard.replicas}
    assert since(before, shard.nodes) == {primary: rest, **expected}


def library_classes() -> dict[str, dict[str, object]]:
    """Return the attributes of every class of the library that a cluster client is made of."""
    modules = [
        library.client,
        library.cluster,
        library.connection,
        library.aio_client,
        library.aio_cluster,
        library.aio_connection,
    ]
    classes = {
        base
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type)
        for base in value.__mro__
        if base.__module__.startswith(f"{library.NAME}.")
    }
    return {f"{cls.__module__}.{cls.__qualname__}": dict(vars(cls)) for cls in classes}


@pytest.mark.parametrize("through", ["constructor", "use_strategy"])
async def test_no_other_client_and_no_class_changes(
    connect: Connector, shard: RedisClusterServers, through: str
) -> None:
    stock = await connect.stock(shard)
    before = library_classes()
    other = stock.client
    used = [other, other.nodes_manager, *nodes_of(other)]
    types = [type(x) for x in used]

    if through == "constructor":
        client = await connect.ours(shard, "latency_based")
    else:
        client = await connect.stock(shard)
        client.balancer = use_strategy(client.client, "latency_based")
    await client.reads(count=20)
    await client.pipeline([("get", key) for key in KEYS])
    await client.pipeline(
        [("get", "key:0"), ("set", "key:0", "x")], transaction=library.HAS_TRANSACTIONS
    )

    assert library_classes() == before
    assert [type(x) for x in used] == types
    late = await connect.stock(shard)
    for neighbour in (stock, late):
        counts = calls(shard.nodes)
        await neighbour.reads(count=20)
        await neighbour.pipeline([("get", key) for key in KEYS])
        assert sum(since(counts, shard.replicas).values()) == 0
        assert type(neighbour.client) is connect.stock_class
        assert type(neighbour.client.pipeline()).__module__.startswith(f"{library.NAME}.")


async def test_many_clients_share_their_classes(
    connect: Connector, shard: RedisClusterServers
) -> None:
    """A class for each client would stay in memory for ever."""
    first = await connect.ours(shard, "latency_based")
    second = await connect.ours(shard, "hybrid")
    assert type(first.client) is type(second.client)
    assert type(first.client.nodes_manager) is type(second.client.nodes_manager)
    assert first.balancer is not second.balancer
    await first.reads(count=10)
    assert second.total("picks") == 0
