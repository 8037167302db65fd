"""Other libraries' cluster clients, for comparison, where they are installed.

Both are asyncio clients, told to spread reads over replicas in their own way. They cannot remap an
address, so the degraded server announces its proxy's port to the cluster instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import Any

# Name of the contender, and what has to be importable.
LIBRARIES = {"coredis": "coredis", "valkey-glide": "glide"}
# Seconds for opening a client, and for one request of valkey-glide (a quarter second by default,
# which would turn slow answers into errors; redis-py's default is the same as this).
TIMEOUT = 5.0


class Peer:
    """A foreign client in the shape that the drivers expect: reads, and ``aclose``."""

    def __init__(self, client: Any, close: Callable[[], Awaitable[object]]) -> None:
        self.get = client.get
        self._close = close

    async def aclose(self) -> None:
        """Close the client."""
        await self._close()


def installed_peers() -> list[str]:
    """Return the names of the libraries that can be imported."""
    return [name for name, module in LIBRARIES.items() if find_spec(module)]


async def open_peer(name: str, host: str, port: int) -> Peer:
    """Return a new client of the library called ``name``, connected to the cluster."""
    return await {"coredis": _open_coredis, "valkey-glide": _open_glide}[name](host, port)


async def _open_coredis(host: str, port: int) -> Peer:
    from coredis import RedisCluster  # type: ignore[import-not-found]  # an optional peer

    client = RedisCluster(host=host, port=port, read_from_replicas=True)
    opened, closing = asyncio.Event(), asyncio.Event()

    # Its task group has to be left by the task that entered it, and a driver opens, measures and
    # closes in three different ones.
    async def hold() -> None:
        async with client:
            opened.set()
            await closing.wait()

    holder = asyncio.create_task(hold())

    async def close() -> None:
        closing.set()
        await holder

    async with asyncio.timeout(TIMEOUT):
        await opened.wait()
    return Peer(client, close)


async def _open_glide(host: str, port: int) -> Peer:
    from glide import (  # type: ignore[import-not-found]  # an optional peer
        GlideClusterClient,
        GlideClusterClientConfiguration,
        NodeAddress,
        ReadFrom,
    )

    configuration = GlideClusterClientConfiguration(
        [NodeAddress(host, port)],
        read_from=ReadFrom.PREFER_REPLICA,
        request_timeout=round(TIMEOUT * 1000),
    )
    client = await GlideClusterClient.create(configuration)
    return Peer(client, client.close)
