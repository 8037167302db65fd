"""Where our classes are joined to those of the asyncio client, whatever its version.

See `_seams_sync`. Before redis-py 8 a refresh of the topology makes new nodes, and before redis-py
7.2 one lost connection closes all others, so that whatever is in flight on them fails. Here nodes
survive a refresh, as in the newest.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from functools import cache
from typing import Any

from ._attempt import Attempt, current
from ._derive import adopt, release
from ._errors import TRANSPORT, is_a
from ._library import VALKEY, library_of
from ._policies import goes_by_key
from ._router import slots_moved
from ._seams_sync import Steady, is_settled


@cache
def client(base: Any) -> Any:
    """Return a cluster client that asks for nodes by slot."""
    base = _by_slot(base)
    if "last_failed_node_name" not in inspect.signature(base.initialize).parameters:
        base = _without_last_failed(base)
    if not hasattr(base, "_reset_for_reinitialize"):
        return base

    class Client(base):  # valkey-py 6.2 calls this where others call aclose
        async def _reset_for_reinitialize(self) -> None:
            if current.get() is None:
                await base._reset_for_reinitialize(self)
            else:
                await self.aclose()

    return Client


def is_closed(client: Any) -> bool:
    """Whether a client was closed and will not connect again."""
    return bool(getattr(client, "_closed", False))  # valkey-py 6.2: redis-py's reconnect


async def spare(client: Any) -> None:
    """Close what is idle on the one node that has just failed a command, if one has."""
    attempt = current.get()
    manager = client.nodes_manager
    if (
        hasattr(manager, "move_node_to_end_of_cached_nodes")  # redis-py 7.2, which does it itself
        or not isinstance(attempt, Attempt)
        or not is_a(sys.exception(), TRANSPORT)
    ):
        return
    node = attempt.node or manager.nodes_cache.get(attempt.pick.endpoint)
    if node is not None:
        manager.startup_nodes.setdefault(node.name, node)  # upstream takes it out
        idle = tuple(node._free)
        await asyncio.gather(*(c.disconnect() for c in idle), return_exceptions=True)


def _by_slot(base: Any) -> Any:
    if hasattr(base, "get_nodes_from_slot"):
        return base

    class Client(base):  # before redis-py 7.1
        async def _determine_nodes(self, command: str, *args: Any, **kwargs: Any) -> Any:
            if kwargs.get("node_flag") is None and goes_by_key(self, command):
                return await self.get_nodes_from_slot(command, *args)
            return await base._determine_nodes(self, command, *args, **kwargs)

    return Client


def _without_last_failed(base: Any) -> Any:
    class Client(base):  # before redis-py 8; the node that failed is asked last all the same
        async def initialize(self, *_: Any) -> Any:
            return await base.initialize(self)

    return Client


@cache
def manager(base: Any) -> Any:
    """Return a node manager whose nodes survive, and that tells its router of moved slots."""
    base = _renamed_manager(base)
    if inspect.iscoroutinefunction(getattr(base, "move_slot", None)):
        return _awaited_manager(base)

    class Manager(base):  # before redis-py 8
        __slots__: tuple[str, ...] = ()
        startup_nodes: Any

        def set_nodes(self, old: Any, new: Any, remove_old: bool = False) -> None:
            survivors = new.keys() & old.keys() if old is self.nodes_cache else ()
            for name in survivors:
                old[name].server_type = new[name].server_type
                new[name] = old[name]
            if survivors:
                for nodes in {id(nodes): nodes for nodes in self.slots_cache.values()}.values():
                    nodes[:] = [new.get(node.name, node) for node in nodes]
            base.set_nodes(self, old, new, remove_old)

        async def initialize(self, *_: Any) -> None:
            self.startup_nodes = Steady(self.startup_nodes)
            await base.initialize(self)

        def move_slot(self, e: Any) -> None:
            base.move_slot(self, e)
            slots_moved(self)

        def _update_moved_slots(self) -> None:  # before redis-py 7.2
            if not is_settled(self):
                base._update_moved_slots(self)
                slots_moved(self)

    return Manager


def _awaited_manager(base: Any) -> Any:
    class Manager(base):
        __slots__ = ()

        async def move_slot(self, e: Any) -> None:
            await base.move_slot(self, e)
            slots_moved(self)

    return Manager


def settle(manager: Any) -> None:
    """Apply a MOVED that the library has put off until it is asked for a node."""
    if getattr(manager, "_moved_exception", None) is not None:
        manager._update_moved_slots()


def reconnect(node: Any) -> None:
    """Have the connections of a node made anew when they are used next.

    Those in use before redis-py 7.0 are not: they may be in the middle of a transaction.
    """
    for connection in node._connections:
        if hasattr(connection, "mark_for_reconnect"):
            connection.mark_for_reconnect()
        elif connection in node._free:
            adopt(connection, _stale_connection_class)


def _stale_connection_class(base: Any) -> Any:
    class StaleConnection(base):
        __slots__ = ()

        async def send_packed_command(self, *args: Any, **kwargs: Any) -> None:
            release(self, _stale_connection_class)
            await self.disconnect()
            await base.send_packed_command(self, *args, **kwargs)

    return StaleConnection


def _renamed_manager(base: Any) -> Any:
    if library_of(base) is not VALKEY:
        return base

    class Manager(base):
        __slots__ = ()

        def get_node_from_slot(
            self, slot: int, read_from_replicas: bool = False, load_balancing_strategy: Any = None
        ) -> Any:
            return base.get_node_from_slot(self, slot, read_from_replicas)

    return Manager
