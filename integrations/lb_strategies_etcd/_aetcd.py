"""aetcd's client over a routing channel.

It takes no channel, and makes one whenever it connects: at its first call, and at the first one
after it has been closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from ._opt_in import RoutedClient, opt_in, opt_out

if TYPE_CHECKING:
    from .aio_channel import AsyncRoutingChannel

_CLOSING: Final[set[asyncio.Task[None]]] = set()
"""Keeps the tasks alive that close what a client was opted out of."""


class RoutedAetcd(RoutedClient):
    """What an aetcd client gets before its own class."""

    _lb_channel: AsyncRoutingChannel
    _lb_make: Callable[[], AsyncRoutingChannel]
    _lb_secure: bool

    async def connect(self) -> None:
        """Make the stubs; nothing is sent yet."""
        own: Any = self
        if own._connected.is_set():
            return
        if self._lb_channel.is_closed:
            self._lb_channel = self._lb_make()
        _open(own, self._lb_channel)

    async def close(self) -> None:
        """Close the connections to all members, and the one that the client had before."""
        own: Any = super()
        await own.close()
        await self._lb_channel.close()
        replaced, self._lb_replaced = self._lb_replaced, dict.fromkeys(self._lb_replaced)
        if replaced.get("_watcher") is not None:
            await replaced["_watcher"].shutdown()
        if replaced.get("channel") is not None:
            await replaced["channel"].close()


def kind(module: Any) -> type:
    """Return the class of clients in ``aetcd.client``."""
    found: type = module.Client
    return found


def is_secure(client: Any) -> bool:
    """Whether `client` speaks TLS, which aetcd cannot by itself."""
    return isinstance(client, RoutedAetcd) and client._lb_secure


def attach(
    client: Any, make: Callable[[], AsyncRoutingChannel], *, has_user: bool, secure: bool
) -> None:
    """Have `client` route over the channels that `make` returns, in the place of any other.

    Args:
        client: to be opted in.
        make: called before anything is changed, and when the client is used after its closing.
        has_user: whether the channel sends tokens of its own, so that the client's is not needed.
        secure: whether the channel has TLS.
    """
    channel = make()
    if isinstance(client, RoutedClient):
        detach(client)
    was_connected = client._connected.is_set()
    places = _unconnected(client)
    if not has_user:
        places["metadata"] = client.metadata
    opt_in(client, RoutedAetcd, channel, places)
    client._lb_make, client._lb_secure = make, secure
    if was_connected:
        _open(client, channel)


def detach(client: Any) -> None:
    """Give `client` back what it had; the routing channel is closed soon."""
    channel = client._lb_channel
    opt_out(client)
    if client.channel is None:
        client._connected.clear()
    else:
        client._connected.set()
    try:
        task = asyncio.get_running_loop().create_task(channel.close())
    except RuntimeError:
        return  # no loop runs, and so does nothing on the channel
    _CLOSING.add(task)
    task.add_done_callback(_CLOSING.discard)


def _unconnected(client: Any) -> dict[str, Any]:
    """Return the attributes that a connection fills, empty."""
    blank = object.__new__(type(client))
    blank._init_channel_attrs()
    return vars(blank)


def _open(client: Any, channel: AsyncRoutingChannel) -> None:
    rpc: Any = import_module("aetcd.rpc")
    watcher: Any = import_module("aetcd.watcher")
    client.channel = channel
    client.kvstub = rpc.KVStub(channel)
    client.clusterstub = rpc.ClusterStub(channel)
    client.leasestub = rpc.LeaseStub(channel)
    client.maintenancestub = rpc.MaintenanceStub(channel)
    client._watcher = watcher.Watcher(
        rpc.WatchStub(channel), timeout=client._timeout, metadata=client.metadata
    )
    client._connected.set()
