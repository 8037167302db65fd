"""The nodes of the synchronous client: which of them is taken, and what their connections tell."""

from __future__ import annotations

import sys
from itertools import chain
from time import perf_counter
from typing import Any

from . import _seams_sync as seams
from ._attempt import Attempt, current, watch_replies
from ._cache import caching_connection_class, caching_pool_class
from ._derive import adopt, derive, is_derived, release
from ._errors import TRANSPORT, is_a
from ._library import library_of
from ._pipeline_sync import connection_class
from ._redirects_sync import Onward, first_connection_class, guarded_manager_class, server_class
from ._router import router_of

_POOL_LISTS = ("_available_connections", "_in_use_connections", "_connections")


def adopt_server(server: Any, manager: Any) -> None:
    """Let the client of one node and its connections, also those to come, report to us."""
    pool = server.connection_pool
    base = getattr(pool, "connection_class", None)
    if not isinstance(base, type):
        return  # a test double
    adopt(server, server_class)
    seams.spare(pool)
    factory = connection_class
    if seams.has_cache(pool):
        factory = caching_connection_class
        adopt(pool, caching_pool_class)
    connect_func = library_of(base).connect_func
    on_connect = manager.connection_kwargs[connect_func]
    pool.connection_kwargs[connect_func] = on_connect
    known = (getattr(pool, name, ()) for name in _POOL_LISTS)
    for connection in list(chain.from_iterable(known)):
        inner = getattr(connection, "_conn", connection)  # under a client-side cache
        release(inner, first_connection_class)
        adopt(inner, factory)
        setattr(inner, connect_func, on_connect)
        watch_replies(inner, manager)
    if not is_derived(base, factory):
        pool.connection_class = derive(factory, base)


def manager_class(base: Any) -> Any:
    """Return a ``NodesManager`` that lets its router choose."""
    base = guarded_manager_class(seams.manager(base))

    class Manager(base):
        __slots__ = ()
        default_node: Any

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
            return Onward(node) if is_moved else node

        def initialize(self, *args: Any, **kwargs: Any) -> None:
            router = router_of(self)
            attempt = current.get()
            if attempt is not None and is_a(sys.exception(), TRANSPORT):
                attempt.ended_at = perf_counter()  # the refresh is not the node's latency
                if router is not None and attempt.has_alternative() and not router.may_refresh():
                    seams.keep(self, attempt.node)
                    return  # one replica's failures must not keep reloading the topology
            base.initialize(self, *args, **kwargs)
            if router is not None:
                router.topology_changed(self.nodes_cache)

        def close(self) -> None:
            default = self.default_node
            base.close(self)
            # Without one no read finds its slot any more, and redis-py can be used again.
            self.default_node = default

        def create_redis_node(self, host: str, port: int, **kwargs: Any) -> Any:
            created = base.create_redis_node(self, host, port, **kwargs)
            adopt_server(created, self)
            return created

    return Manager
