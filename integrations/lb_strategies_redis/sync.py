"""The synchronous client, for threads."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from itertools import chain
from time import perf_counter
from typing import Any

from lb_strategies import Pick

from . import _seams_sync as seams
from ._addresses import split, unbind
from ._attempt import (
    BLOCKING,
    Attempt,
    Uncounted,
    connected,
    current,
    is_blocking,
    watch_replies,
)
from ._cache import caching_connection_class, caching_pool_class
from ._derive import adopt, derive, is_derived, release
from ._errors import TRANSPORT, is_a, unwrap
from ._library import library_of
from ._pipeline import PipelineCall
from ._pipeline_sync import SyncPipelineCall, connection_class
from ._policies import resolve_reads, restore
from ._redirects import MOST_CONFIRMATIONS, Unconfirmed
from ._redirects_sync import (
    Onward,
    first_connection_class,
    guarded_manager_class,
    opening_class,
    server_class,
)
from ._router import Router, Shard, primary_only, put, router_of, take_out
from ._selection import BalancedClient


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
    release(client, opening_class)
    put(router, manager)
    router.addresses.bind(manager, seams.startup_nodes(client))
    adopt(client, client_class)
    adopt(manager, manager_class)
    resolve_reads(client)
    manager.connection_kwargs[router.library.connect_func] = client.on_connect
    for server in _servers(client):
        _adopt_server(server, manager)
    if router.addresses.accept_all(manager.nodes_cache.values()):
        router.topology_changed(manager.nodes_cache)
    else:  # of a client that something else built
        manager.startup_nodes = {node.name: node for node in seams.startup_nodes(client)}
        manager.initialize()


def detach(client: Any) -> None:
    """Give `client` its own methods back; its connections keep ours, which then do nothing."""
    restore(client)
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


_POOL_LISTS = ("_available_connections", "_in_use_connections", "_connections")


def _adopt_server(server: Any, manager: Any) -> None:
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
            # Commands do not come here, but redirects, subscriptions and transactions do.
            router = router_of(self)
            if router is None:
                return base.get_node_from_slot(
                    self, slot, read_from_replicas, load_balancing_strategy, **kwargs
                )
            if read_from_replicas or load_balancing_strategy is not None:
                seams.settle(self)
                node = router.shard(slot, self.slots_cache).choose()
            elif self.slots_cache.get(slot):
                node = base.get_node_from_slot(self, slot, False, None, **kwargs)
            else:
                raise router.uncovered(slot)
            attempt = current.get()
            if attempt is not None:
                attempt.hop(node.name, router)
            return Onward(node) if isinstance(attempt, Attempt) else node

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
            _adopt_server(created, self)
            return created

    return Manager


def command_class(base: Any) -> Any:
    """Return a class that counts and times single commands: a client's, or a pipeline's."""
    base = seams.client(base)

    class Commands(base):
        _lb_router: Router

        def get_nodes_from_slot(self, command: str, *args: Any) -> list[Any]:
            manager, router = self.nodes_manager, self._lb_router
            slot = self.determine_slot(*args)
            if (command not in router.reads and not router.is_read(command)) or (
                router in primary_only.get()
            ):
                return [manager.get_node_from_slot(slot)]
            shard = router.shard(slot, manager.slots_cache)
            call = current.get()
            if isinstance(call, PipelineCall) and call.is_grouping:
                return [call.choose(shard)]
            return [shard]

        def _execute_command(self, target_node: Any, *args: Any, **kwargs: Any) -> Any:
            outer = current.get()
            tried: Collection[str] = () if outer is None else outer.tried
            denied: tuple[Pick, ...] = ()
            shard = target_node if type(target_node) is Shard else None
            if args[0] in BLOCKING and is_blocking(args):
                return self._lb_wait(target_node if shard is None else shard.choose(), args, kwargs)
            confirmations = 0
            while True:
                if shard is None:
                    pick = self._lb_router.balancer.begin(
                        target_node.name, now=perf_counter(), operation=args[0]
                    )
                else:
                    pick = shard.balancer.acquire(
                        shard.candidates,
                        now=perf_counter(),
                        operation=args[0],
                        exclude=tried,
                        fallback=shard.fallback,
                    )
                    target_node = shard.by_name[pick.state.endpoint]
                attempt = Attempt(pick, shard, tried)
                if denied:
                    attempt.retries(denied)
                token = current.set(attempt)
                try:
                    response = base._execute_command(self, target_node, *args, **kwargs)
                except BaseException as error:
                    current.reset(token)
                    if attempt.fail(error):
                        tried = (*attempt.tried, str(attempt.pick.endpoint))
                        denied = attempt.denied
                        continue
                    if isinstance(error, Unconfirmed) and confirmations < MOST_CONFIRMATIONS:
                        confirmations += 1
                        self.nodes_manager._lb_confirm(error.cause)
                        continue
                    cause = unwrap(error)
                    if cause is error:
                        raise
                    raise cause from None
                current.reset(token)
                attempt.succeed()
                return response

        def _lb_wait(self, node: Any, args: Any, kwargs: Any, confirmations: int = 0) -> Any:
            token = current.set(Uncounted())
            try:
                return base._execute_command(self, node, *args, **kwargs)
            except Unconfirmed as error:
                if confirmations == MOST_CONFIRMATIONS:
                    raise error.cause from None
                self.nodes_manager._lb_confirm(error.cause)
            finally:
                current.reset(token)
            return self._lb_wait(node, args, kwargs, confirmations + 1)

        def get_node(self, host: Any = None, port: Any = None, node_name: Any = None) -> Any:
            node = base.get_node(self, host, port, node_name)
            attempt = current.get()
            if isinstance(attempt, Attempt):  # during a command: an ASK redirect
                if node is None:  # ... to a node that a refresh has just dropped
                    node = self.nodes_manager._lb_add(*split(node_name))
                attempt.hop(node.name, self._lb_router)
                return Onward(node)
            return node

    return Commands


def client_class(base: Any) -> Any:
    """Return a cluster client whose commands and pipelines are routed."""
    mixin = () if issubclass(base, BalancedClient) else (BalancedClient,)

    class Client(*mixin, command_class(base)):  # type: ignore[misc]  # a dynamic base
        def on_connect(self, connection: Any) -> None:
            watch_replies(connection, self.nodes_manager)  # hiredis asks only once, on connecting
            base.on_connect(self, connection)
            watch_replies(connection, self.nodes_manager)  # RESP3 brings a parser of its own
            connected()

        def _execute_pipeline_by_slot(self, command: str, slots_to_args: Any) -> list[Any]:
            if not self._lb_router.is_read(command):
                return base._execute_pipeline_by_slot(self, command, slots_to_args)
            pipe = self.pipeline()  # by key, not by node: so the strategy has its say
            for args in slots_to_args.values():
                pipe.execute_command(command, *args)
            return pipe.execute()

        def pipeline(self, *args: Any, **kwargs: Any) -> Any:
            pipe = base.pipeline(self, *args, **kwargs)
            pipe._lb_router = self._lb_router
            adopt(pipe, pipeline_class)
            return pipe

    return Client


def pipeline_class(base: Any) -> Any:
    """Return a pipeline that takes one pick for each node."""
    cluster = library_of(base).cluster
    base = command_class(base)
    if not hasattr(cluster, "PipelineStrategy"):  # the pipeline runs itself
        base = pipeline_strategy_class(base)

    class Pipeline(base):
        def execute(self, raise_on_error: bool = True) -> list[Any]:
            strategy = getattr(self, "_execution_strategy", None)
            transaction = strategy is not None and isinstance(strategy, cluster.TransactionStrategy)
            if strategy is not None and not transaction:
                adopt(strategy, pipeline_strategy_class)
            call = SyncPipelineCall(self._lb_router, is_timed=not transaction)
            token = current.set(call)
            try:
                return base.execute(self, raise_on_error)
            finally:
                current.reset(token)
                call.release()

        def get_redis_connection(self, node: Any) -> Any:
            call = current.get()
            if isinstance(call, SyncPipelineCall):
                call.begin(node.name)
            return base.get_redis_connection(self, node)

    return Pipeline


def pipeline_strategy_class(base: Any) -> Any:
    """Return what runs a pipeline that is no transaction, each attempt choosing anew."""
    base = seams.pipeline_strategy(base)

    class PipelineStrategy(base):
        __slots__ = ()

        def _send_cluster_commands(self, *args: Any, **kwargs: Any) -> Any:
            call = current.get()
            if not isinstance(call, SyncPipelineCall):
                return base._send_cluster_commands(self, *args, **kwargs)
            while True:
                call.restart()
                try:
                    return base._send_cluster_commands(self, *args, **kwargs)
                except BaseException as error:
                    if not call.fail(error):
                        raise

    return PipelineStrategy
