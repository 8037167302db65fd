"""The tasks of an asyncio client share its connections: one's trouble is not another's.

A refresh of redis-py's cuts the connections on which other tasks wait for answers; the synchronous
client has no such thing, so these tests have no second half.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from bench.servers.redis import RedisClusterServers

from . import library
from .drivers import Connector, Driver
from .nodes import frozen, key_on, move, settle

pytestmark = pytest.mark.integration

WAIT = 1.0
"""Seconds that a blocking command waits on the server."""


@pytest.fixture
async def connect() -> AsyncIterator[Connector]:
    """Make asyncio clients."""
    connector = Connector("asyncio")
    try:
        yield connector
    finally:
        await connector.close()


async def waiting(client: Driver, key: str) -> asyncio.Task[object]:
    """Start a command that the server answers after `WAIT` seconds."""
    task = asyncio.ensure_future(client.blpop(f"{{{key}}}list", timeout=WAIT))
    await asyncio.sleep(WAIT / 5)
    return task


async def test_a_redirect_cuts_no_other_tasks_connection(
    connect: Connector, lonely: RedisClusterServers
) -> None:
    key = key_on(lonely, 0)
    client = await connect.ours(lonely, "latency_based", **connect.retries(0), reinitialize_steps=2)
    await client.get(key)
    move(lonely, key, *lonely.primaries)
    assert await client.get(key) == key
    task = await waiting(client, key_on(lonely, 1))
    move(lonely, key, *reversed(lonely.primaries))
    assert await client.get(key) == key  # the second redirect, which asks for a refresh
    assert await client.get(key) == key
    assert await task is None


async def test_a_refresh_that_is_given_up_cuts_no_other_tasks_connection(
    connect: Connector, shards: RedisClusterServers
) -> None:
    client = await connect.ours(shards, "latency_based", **connect.retries(0))
    key = key_on(shards, 0)
    settle(shards)
    task = await waiting(client, key)
    with frozen(*shards.nodes[1:]):
        for _ in range(10):  # the first node that a refresh asks is drawn at random
            client.client._initialize = True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.02):
                    await client.get(key)
        assert await task is None
    assert await client.get(key) == key


async def test_free_connections_that_are_cut_are_nobodys_meanwhile(
    connect: Connector, shard: RedisClusterServers
) -> None:
    """https://github.com/redis/redis-py/issues/3130: a time-out made the client unusable.

    Stock: "'NoneType' object has no attribute 'writelines'".
    """
    if not hasattr(library.aio_connection.Connection, "mark_for_reconnect"):
        pytest.skip(f"{library.TITLE} does not cut free connections alone")
    client = await connect.ours(shard, "latency_based", **connect.retries(0))
    await client.together([("get", "key:0")] * 24)
    for _ in range(100):
        cuts = [node.disconnect_free_connections() for node in client.client.get_nodes()]
        reads = [client.get("key:0") for _ in range(8)]
        answers = await asyncio.gather(*cuts, *reads)
        assert answers[len(cuts) :] == ["key:0"] * 8
    assert client.total("failures") == 0
