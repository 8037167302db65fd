"""The nodes of the asyncio client: which of them is taken, and what their connections tell."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from . import _seams_aio as seams
from ._attempt import Attempt, current
from ._cache import asyncio_connection_class
from ._derive import adopt, derive, is_derived
from ._pipeline_aio import node_class
from ._redirects_aio import guarded_manager_class
from ._router import router_of
from ._seams_sync import has_cache

rereading: ContextVar[bool] = ContextVar("lb_strategies_rereading", default=False)
"""Whether the topology is being read again: then no connection is cut.

redis-py cuts all of them when a refresh fails or is cancelled, and when it wants one, while other
tasks wait for answers on them. A refresh that succeeds has each made anew when it is next used.
"""


def adopt_node(node: Any) -> None:
    """Let a node and its connections, also those to come, report to us."""
    adopt(node, node_class)
    if has_cache(node) and not is_derived(node.connection_class, asyncio_connection_class):
        node.connection_class = derive(asyncio_connection_class, node.connection_class)
        for connection in node._connections:
            adopt(connection, asyncio_connection_class)


def manager_class(base: Any) -> Any:
    """Return a ``NodesManager`` that lets its router choose."""
    base = guarded_manager_class(seams.manager(base))

    class Manager(base):
        __slots__ = ()

        def get_node_from_slot(
            self,
            slot: int,
            read_from_replicas: bool = False,
            load_balancing_strategy: Any = None,
            **kwargs: Any,
        ) -> Any:
            # Commands do not come here, but redirects, subscriptions and transactions do. A MOVED
            # names the primary: a choice could find the node again that has sent it away.
            router = router_of(self)
            if router is None:
                return base.get_node_from_slot(
                    self, slot, read_from_replicas, load_balancing_strategy, **kwargs
                )
            attempt = current.get()
            seams.settle(self)
            is_moved = isinstance(attempt, Attempt)
            if (read_from_replicas or load_balancing_strategy is not None) and not is_moved:
                node = router.shard(slot, self.slots_cache).choose()
            elif self.slots_cache.get(slot):
                node = base.get_node_from_slot(self, slot, False, None, **kwargs)
            else:
                raise router.uncovered(slot)
            if attempt is not None:
                attempt.hop(node.name, router)
            return node

        def set_nodes(self, old: Any, new: Any, remove_old: bool = False) -> None:
            base.set_nodes(self, old, new, remove_old)
            for node in (*old.values(), *new.values()):
                adopt_node(node)

        async def initialize(self, *args: Any, **kwargs: Any) -> None:
            router = router_of(self)
            await base.initialize(self, *args, **kwargs)
            if router is not None:
                router.topology_changed(self.nodes_cache)

        async def aclose(self, *args: Any, **kwargs: Any) -> None:
            if not rereading.get():
                await base.aclose(self, *args, **kwargs)

    return Manager
