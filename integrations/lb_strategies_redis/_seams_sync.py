"""Where our classes are joined to those of the synchronous client, whatever its version.

Our classes are written for the newest redis-py. Each function here takes one of upstream's
classes and returns it with the methods that ours count on. What a class lacks is looked up on
the class, not told by a version number.
"""

from __future__ import annotations

import inspect
from contextlib import suppress
from contextvars import ContextVar
from functools import cache
from queue import Empty
from typing import Any

from ._derive import adopt, release
from ._library import VALKEY, library_of
from ._policies import goes_by_key
from ._router import router_of, slots_moved


@cache
def client(base: Any) -> Any:
    """Return a cluster client, or a pipeline, that asks for nodes by slot."""
    base = _renamed_client(base)
    if hasattr(base, "get_nodes_from_slot"):
        return base

    class Client(base):  # before redis-py 7.1
        def _determine_nodes(self, *args: Any, **kwargs: Any) -> Any:
            command = args[0].upper()
            flag = kwargs.get("nodes_flag", kwargs.get("node_flag"))
            if flag is None and goes_by_key(self, command):
                return self.get_nodes_from_slot(command, *args)
            return base._determine_nodes(self, *args, **kwargs)

    return Client


@cache
def manager(base: Any) -> Any:
    """Return a node manager that tells its router of slots that have moved."""
    base = _renamed_manager(base)
    if hasattr(base, "move_slot"):

        class Manager(base):
            def move_slot(self, e: Any) -> None:
                base.move_slot(self, e)
                slots_moved(self)

        return Manager

    class OlderManager(base):  # before redis-py 7.2
        startup_nodes: Any

        def initialize(self, *_: Any) -> None:
            self.startup_nodes = Steady(self.startup_nodes)
            token = _refreshing.set(True)
            try:
                base.initialize(self)
            finally:
                _refreshing.reset(token)

        def _update_moved_slots(self) -> None:
            if not is_settled(self):
                base._update_moved_slots(self)
                slots_moved(self)

    return OlderManager


_refreshing: ContextVar[bool] = ContextVar("lb_strategies_refreshing", default=False)


def given_nodes(client: Any, args: Any, kwargs: dict[str, Any]) -> list[Any]:
    """Return the nodes that the arguments of a constructor name."""
    library = library_of(type(client))
    upstream: Any = library.cluster_clients[0]
    given = inspect.signature(upstream.__init__).bind_partial(client, *args, **kwargs).arguments
    nodes = list(given.get("startup_nodes") or ())
    if given.get("url"):
        given = {"port": 6379, **library.parse_url(given["url"])}
    if given.get("host"):
        nodes.append(library.cluster.ClusterNode(given["host"], given.get("port", 6379)))
    return nodes


def startup_nodes(client: Any) -> list[Any]:
    """Return the nodes that the user named, or what is nearest to it."""
    for name in ("startup_nodes", "_lb_given"):  # older clients do not remember them
        nodes: list[Any] | None = getattr(client, name, None)
        if nodes:
            return nodes
    return list(client.nodes_manager.startup_nodes.values())


def has_cache(pool: Any) -> bool:
    """Whether a pool's connections answer some reads from a client-side cache."""
    options = pool.connection_kwargs
    return (
        getattr(pool, "cache", None) is not None
        or options.get("client_cache") is not None  # these two are valkey-py's
        or bool(options.get("cache_enabled"))
    )


def spare(pool: Any) -> None:
    """Let a refresh of the topology close no connection that another thread is using."""
    older = not hasattr(library_of(type(pool)).cluster.NodesManager, "move_slot")
    if older and not getattr(pool, "_lb_spares", False):
        adopt(pool, _sparing_pool_class)


def _sparing_pool_class(base: Any) -> Any:
    errors = library_of(base).exceptions

    class Pool(base):  # before redis-py 7.2
        _lb_spares = True

        def make_connection(self) -> Any:
            try:
                return base.make_connection(self)
            except errors.ConnectionError as error:  # before redis-py 6: it is exhausted
                raise errors.MaxConnectionsError(*error.args) from None

        def disconnect(self, *args: Any, **kwargs: Any) -> None:
            if _refreshing.get():
                _cut_idle(self, base)
            else:
                base.disconnect(self, *args, **kwargs)

    return Pool


class Steady(dict[str, Any]):
    """Nodes that some versions go through while others may take one out that has failed."""

    def values(self) -> Any:
        """Return the nodes of this moment."""
        return list(super().values())


def is_settled(manager: Any) -> bool:
    """Whether nothing is to be done about a MOVED that was put off; if so, forget it.

    If it names the primary that the slot has, upstream would list that twice, and a replica no
    more. If it names a node that has gone meanwhile, upstream would dial it all the same.
    """
    moved = manager._moved_exception
    nodes = manager.slots_cache.get(moved.slot_id)
    is_old = bool(nodes) and (nodes[0].host, nodes[0].port) == (moved.host, moved.port)
    is_gone = manager.get_node(host=moved.host, port=moved.port) is None
    if is_old or (is_gone and router_of(manager) is not None):
        manager._moved_exception = None
        return True
    return False


def settle(manager: Any) -> None:
    """Apply a MOVED that the library has put off until it is asked for a node."""
    if getattr(manager, "_moved_exception", None) is not None:
        with manager._lock:
            if manager._moved_exception is not None:
                manager._update_moved_slots()


def keep(manager: Any, node: Any) -> None:
    """Keep a node that failed among those that the topology can be asked for."""
    if node is not None:
        manager.startup_nodes.setdefault(node.name, node)  # before redis-py 7.2 it is taken out


@cache
def pipeline_strategy(base: Any) -> Any:
    """Return what runs a pipeline, asking the pipeline for nodes."""
    library = library_of(base)
    client = library.cluster_clients[0]
    if hasattr(client, "get_nodes_from_slot") or issubclass(base, client):
        return base

    class PipelineStrategy(base):  # redis-py 6
        def _determine_nodes(self, *args: Any, **kwargs: Any) -> Any:
            return self._pipe._determine_nodes(*args, **kwargs)

    return PipelineStrategy


def reconnect(pool: Any) -> None:
    """Have every connection of a pool made anew when it is used next."""
    if hasattr(pool, "update_active_connections_for_reconnect"):
        with pool._lock:
            pool.update_active_connections_for_reconnect()
            pool.disconnect_free_connections()
        return
    _cut_idle(pool, type(pool))
    for connection in _in_use(pool):
        adopt(connection, _stale_connection_class)


def _cut_idle(pool: Any, base: Any) -> None:
    """Close what nobody uses, with the methods of class `base`."""
    queue = getattr(pool, "pool", None)  # of a pool that blocks when it is exhausted
    if queue is None:
        base.disconnect(pool, False)
        return
    taken = []
    with suppress(Empty):
        while True:
            taken.append(queue.get_nowait())
    for connection in reversed(taken):
        if connection is not None:
            connection.disconnect()
        queue.put_nowait(connection)


def _in_use(pool: Any) -> list[Any]:
    queue = getattr(pool, "pool", None)
    if queue is None:
        return list(pool._in_use_connections)
    idle = list(queue.queue)
    return [connection for connection in pool._connections if connection not in idle]


def _stale_connection_class(base: Any) -> Any:
    class StaleConnection(base):
        def connect(self) -> None:
            # The first thing that a pool calls when it hands out a connection.
            release(self, _stale_connection_class)
            self.disconnect()
            base.connect(self)

    return StaleConnection


def _renamed_client(base: Any) -> Any:
    if library_of(base) is not VALKEY:
        return base

    class Client(base):
        def get_redis_connection(self, node: Any) -> Any:
            return base.get_valkey_connection(self, node)

        def get_valkey_connection(self, node: Any) -> Any:
            return self.get_redis_connection(node)

    return Client


def _renamed_manager(base: Any) -> Any:
    if library_of(base) is not VALKEY:
        return base

    class Manager(base):
        def create_redis_node(self, host: str, port: int, **kwargs: Any) -> Any:
            return base.create_valkey_node(self, host, port, **kwargs)

        def create_redis_connections(self, nodes: Any) -> None:
            base.create_valkey_connections(self, nodes)

        def create_valkey_node(self, host: str, port: int, **kwargs: Any) -> Any:
            return self.create_redis_node(host, port, **kwargs)

        def get_node_from_slot(
            self,
            slot: int,
            read_from_replicas: bool = False,
            load_balancing_strategy: Any = None,
            **kwargs: Any,
        ) -> Any:
            return base.get_node_from_slot(self, slot, read_from_replicas, **kwargs)

    return Manager
