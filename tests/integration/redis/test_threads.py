"""The threads of a synchronous client share its connections: one's trouble is not another's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from bench.servers.redis import RedisClusterServers

from . import library
from .drivers import Connector
from .nodes import frozen, key_on, move

pytestmark = pytest.mark.integration

TIMEOUT = 1.0
"""Seconds that the client waits for a server."""


@pytest.fixture
async def connect() -> AsyncIterator[Connector]:
    """Make synchronous clients."""
    connector = Connector("sync")
    try:
        yield connector
    finally:
        await connector.close()


async def test_a_redirect_that_fails_cuts_no_other_threads_connection(
    connect: Connector, lonely: RedisClusterServers
) -> None:
    """redis-py gives a connection back on MOVED and cuts it when the next one fails."""
    source, target = lonely.primaries
    key, other = key_on(lonely, 0), key_on(lonely, 0, 1)
    client = await connect.ours(
        lonely,
        "latency_based",
        **connect.retries(0),
        socket_timeout=TIMEOUT,
    )
    await client.get(key)
    move(lonely, key, source, target)
    try:
        with frozen(target):
            redirected = asyncio.ensure_future(client.get(key))
            await asyncio.sleep(TIMEOUT / 3)
            waiting = asyncio.ensure_future(client.blpop(f"{{{other}}}list", timeout=0.8 * TIMEOUT))
            with pytest.raises(library.ClientError):
                await redirected
            assert await waiting is None
    finally:
        move(lonely, key, target, source)
