"""Opting in the synchronous client, the one for threads."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from . import _seams_sync as seams
from ._addresses import unbind
from ._client_sync import client_class
from ._derive import adopt, release
from ._forks import Locks
from ._library import library_of
from ._manager_sync import adopt_server, manager_class
from ._policies import resolve_reads, restore
from ._redirects_sync import opening_class, server_class
from ._router import Router, put, take_out


def prepare(client: Any, router: Router, args: Any, kwargs: dict[str, Any]) -> None:
    """Guard a client that is about to be built: building it makes connections."""
    client._lb_given = seams.given_nodes(client, args, kwargs)
    client._lb_router = router
    router.addresses.remap = kwargs.get("address_remap")
    kwargs["address_remap"] = router.addresses
    adopt(client, opening_class)


def attach(client: Any, router: Router) -> None:
    """Let `router` choose the nodes of `client`, from now on."""
    router.check_reads(client.commands_parser.commands)
    manager = client.nodes_manager
    client._lb_router = router
    client._lb_locks = Locks(client)
    release(client, opening_class)
    put(router, manager)
    router.addresses.bind(manager, seams.startup_nodes(client))
    adopt(client, client_class)
    adopt(manager, manager_class)
    resolve_reads(client)
    manager.connection_kwargs[router.library.connect_func] = client.on_connect
    for server in _servers(client):
        adopt_server(server, manager)
    if router.addresses.accept_all(manager.nodes_cache.values()):
        router.topology_changed(manager.nodes_cache)
    else:  # of a client that something else built
        manager.startup_nodes = {node.name: node for node in seams.startup_nodes(client)}
        manager.initialize()


def detach(client: Any) -> None:
    """Give `client` its own methods back; its connections keep ours, which then do nothing."""
    restore(client)
    del client._lb_locks
    release(client, client_class)
    manager = client.nodes_manager
    release(manager, manager_class)
    unbind(manager)
    take_out(manager)
    for server in _servers(client):
        release(server, server_class)


def reconnect(client: Any) -> None:
    """Have every connection made anew, so that it is told whether it may read."""
    for server in _servers(client):
        seams.reconnect(server.connection_pool)


def _servers(client: Any) -> Iterator[Any]:
    manager = client.nodes_manager
    for node in chain(
        seams.startup_nodes(client),
        list(manager.startup_nodes.values()),
        list(manager.nodes_cache.values()),
    ):
        server = library_of(type(node)).node_client(node)
        if server is not None:
            yield server
