"""Opting in the asyncio client."""

from __future__ import annotations

from typing import Any

from . import _seams_aio as seams
from ._addresses import unbind
from ._attempt import watch_replies
from ._client_aio import client_class
from ._commands import SteadyCommands
from ._derive import adopt, release
from ._lag import LoopLag
from ._manager_aio import adopt_node, manager_class
from ._pipeline_aio import node_class
from ._policies import resolve_reads, restore
from ._router import Router, put, take_out
from ._seams_sync import startup_nodes


def prepare(client: Any, router: Router, args: Any, kwargs: dict[str, Any]) -> None:
    """Do nothing: an asyncio client connects later."""


def attach(client: Any, router: Router) -> None:
    """Let `router` choose the nodes of `client`, from now on."""
    router.check_reads(client.commands_parser.commands)
    manager = client.nodes_manager
    client._lb_router = router
    client._lb_lag = LoopLag()
    client._lb_one_key = {}
    client._lb_last_failed = None
    put(router, manager)
    adopt(client, client_class)
    adopt(manager, manager_class)
    resolve_reads(client)
    if not isinstance(client.commands_parser, SteadyCommands):
        client.commands_parser = SteadyCommands(client.commands_parser, manager)
    _rebind(client)
    connect_func = router.library.connect_func
    client.connection_kwargs[connect_func] = client.on_connect
    manager.connection_kwargs[connect_func] = client.on_connect
    for node in _nodes(client):
        adopt_node(node)
        node.connection_kwargs[connect_func] = client.on_connect
        for connection in node._connections:
            setattr(connection, connect_func, client.on_connect)
            watch_replies(connection, manager)
    client._lb_given = startup_nodes(client)
    router.addresses.bind(manager, client._lb_given)
    if not router.addresses.accept_all(manager.nodes_cache.values()):
        manager.startup_nodes = {node.name: node for node in client._lb_given}
        client._initialize = True
        client._lb_last_failed = ""  # so that closing it in this state closes it
    if manager.nodes_cache:
        router.topology_changed(manager.nodes_cache)


def detach(client: Any) -> None:
    """Give `client` and its nodes their own methods back."""
    restore(client)
    if isinstance(client.commands_parser, SteadyCommands):
        client.commands_parser = client.commands_parser.original
    release(client, client_class)
    manager = client.nodes_manager
    release(manager, manager_class)
    unbind(manager)
    take_out(manager)
    _rebind(client)
    for node in _nodes(client):
        release(node, node_class)


def reconnect(client: Any) -> None:
    """Have every connection made anew, so that it is told whether it may read."""
    for node in _nodes(client):
        seams.reconnect(node)


def _rebind(client: Any) -> None:
    """Renew what the client bound of its own methods when it was built."""
    policies = getattr(client, "_policies_callback_mapping", {})
    for policy, callback in policies.items():
        if getattr(callback, "__name__", "") == "get_nodes_from_slot":
            policies[policy] = client.get_nodes_from_slot


def _nodes(client: Any) -> list[Any]:
    manager = client.nodes_manager
    return [
        *startup_nodes(client),
        *manager.startup_nodes.values(),
        *manager.nodes_cache.values(),
    ]
