"""The synchronous client, for threads."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self

import redis.cluster

from lb_strategies import BalancerOptions, EndpointPolicy, LoadBalancingStrategy, Pick, Policy

from ._addresses import split, unbind
from ._attempt import (
    BLOCKING,
    Attempt,
    PipelineCall,
    Uncounted,
    connected,
    current,
    is_blocking,
    watch_replies,
)
from ._cache_sync import caching_connection_class, caching_pool_class
from ._derive import adopt, derive, is_derived, release
from ._errors import TRANSPORT, unwrap
from ._pipeline_sync import SyncPipelineCall, connection_class
from ._policies import resolve_reads, restore
from ._redirects import MOST_CONFIRMATIONS, Unconfirmed
from ._redirects_sync import (
    first_connection_class,
    guarded_manager_class,
    opening_class,
    server_class,
)
from ._router import BalancerSlot, Router, Shard, primary_only, router_of
from ._selection import BalancedClient, Selection


class RedisCluster(BalancedClient, redis.cluster.RedisCluster):
    """A ``redis.cluster.RedisCluster`` that can choose by latency.

    Takes everything that the class it extends takes, and:

    Args:
        load_balancing_strategy: None, a `LoadBalancingStrategy`, its value, or a `Policy`. With
            None or one of redis-py's own four the client is upstream's, untouched.
        balancer_options: tunables of our strategies.
        read_commands: names of further commands that replicas shall answer, beyond those that
            redis-py knows as reads: ``("PFCOUNT", "TOUCH")``, or reads of a module.
        endpoint_policy: which of the addresses that servers name may be dialled. None: those
            that nodes which are known confirm.

    Raises:
        ValueError: unknown strategy, options without a strategy of ours, or a name in
            `read_commands` that the server calls a write (in asyncio with the first command).
        TypeError: `balancer_options`, `read_commands` or `endpoint_policy` is of another type.
    """

    def __init__(
        self,
        *args: Any,
        load_balancing_strategy: LoadBalancingStrategy | Policy | str | None = None,
        balancer_options: BalancerOptions | None = None,
        read_commands: Iterable[str] = (),
        endpoint_policy: EndpointPolicy | None = None,
        **kwargs: Any,
    ) -> None:
        selection = Selection.parse(
            load_balancing_strategy, balancer_options, read_commands, endpoint_policy
        )
        router = selection.router
        if router is not None:
            router.addresses.remap = kwargs.get("address_remap")
            kwargs["address_remap"] = router.addresses
            self._lb_router = router
            adopt(self, opening_class)
        super().__init__(  # type: ignore[misc]  # mypy takes *args for every parameter
            *args, load_balancing_strategy=selection.upstream, **kwargs
        )
        if router is not None:
            release(self, opening_class)
            attach(self, router)

    if TYPE_CHECKING:  # the methods are upstream's, which do not say that they return Self

        @classmethod
        def from_url(cls, url: str, **kwargs: Any) -> Self:  # noqa: D102 - upstream's
            ...

        def __enter__(self) -> Self: ...


def attach(client: Any, router: Router) -> None:
    """Let `router` choose the nodes of `client`, from now on."""
    router.check_reads(client.commands_parser.commands)
    manager = client.nodes_manager
    client._lb_router = router
    manager.read_load_balancer = BalancerSlot(router)
    router.addresses.bind(manager, client.startup_nodes)
    adopt(client, client_class)
    adopt(manager, manager_class)
    resolve_reads(client)
    manager.connection_kwargs["redis_connect_func"] = client.on_connect
    for node in _nodes(client):
        if node.redis_connection is not None:
            _adopt_server(node.redis_connection, manager)
    if router.addresses.accept_all(manager.nodes_cache.values()):
        router.topology_changed(manager.nodes_cache)
    else:  # of a client that something else built
        manager.startup_nodes = {node.name: node for node in client.startup_nodes}
        manager.initialize()


def detach(client: Any) -> None:
    """Give `client` its own methods back; its connections keep ours, which then do nothing."""
    restore(client)
    release(client, client_class)
    manager = client.nodes_manager
    release(manager, manager_class)
    unbind(manager)
    manager.read_load_balancer = redis.cluster.LoadBalancer()
    for node in _nodes(client):
        if node.redis_connection is not None:
            release(node.redis_connection, server_class)


def reconnect(client: Any) -> None:
    """Have every connection made anew, so that it is told whether it may read."""
    for node in _nodes(client):
        if node.redis_connection is not None:
            pool = node.redis_connection.connection_pool
            with pool._lock:
                pool.update_active_connections_for_reconnect()
                pool.disconnect_free_connections()


def _nodes(client: Any) -> Iterator[Any]:
    manager = client.nodes_manager
    return chain(
        client.startup_nodes,
        list(manager.startup_nodes.values()),
        list(manager.nodes_cache.values()),
    )


_POOL_LISTS = ("_available_connections", "_in_use_connections", "_connections")


def _adopt_server(server: Any, manager: Any) -> None:
    """Let the client of one node and its connections, also those to come, report to us."""
    pool = server.connection_pool
    base = getattr(pool, "connection_class", None)
    if not isinstance(base, type):
        return  # a test double
    adopt(server, server_class)
    factory = connection_class
    if getattr(pool, "cache", None) is not None:
        factory = caching_connection_class
        adopt(pool, caching_pool_class)
    on_connect = manager.connection_kwargs["redis_connect_func"]
    pool.connection_kwargs["redis_connect_func"] = on_connect
    known = (getattr(pool, name, ()) for name in _POOL_LISTS)
    for connection in list(chain.from_iterable(known)):
        inner = getattr(connection, "_conn", connection)  # under a client-side cache
        release(inner, first_connection_class)
        adopt(inner, factory)
        inner.redis_connect_func = on_connect
        watch_replies(inner, manager)
    if not is_derived(base, factory):
        pool.connection_class = derive(factory, base)


def _hold(attempt: Attempt | PipelineCall, manager: Any) -> None:
    """Keep the connection that has told of a redirect from other threads: see `Attempt.hold`."""
    if type(attempt) is Attempt and attempt.redirected_by is not None:
        node = manager.nodes_cache.get(attempt.pick.endpoint)
        if node is not None and node.redis_connection is not None:
            attempt.hold(node.redis_connection.connection_pool)


def manager_class(base: Any) -> Any:
    """Return a ``NodesManager`` that lets its router choose."""
    base = guarded_manager_class(base)

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
                node = router.shard(slot, self.slots_cache).choose()
            elif self.slots_cache.get(slot):
                node = base.get_node_from_slot(self, slot, False, None, **kwargs)
            else:
                raise router.uncovered(slot)
            attempt = current.get()
            if attempt is not None:
                _hold(attempt, self)
                attempt.hop(node.name, router)
            return node

        def initialize(self, *args: Any, **kwargs: Any) -> None:
            router = router_of(self)
            attempt = current.get()
            if attempt is not None and isinstance(sys.exception(), TRANSPORT):
                attempt.ended_at = perf_counter()  # the refresh is not the node's latency
                if router is not None and attempt.has_alternative() and not router.may_refresh():
                    return  # one replica's failures must not keep reloading the topology
            base.initialize(self, *args, **kwargs)
            if router is not None:
                router.topology_changed(self.nodes_cache)

        def move_slot(self, e: Any) -> None:
            base.move_slot(self, e)
            router = router_of(self)
            if router is not None:
                router.slots_moved()

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
            if args[0] in BLOCKING and shard is not None and is_blocking(args):
                return self._lb_wait(shard.choose(), args, kwargs)
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
                _hold(attempt, self.nodes_manager)
                attempt.hop(node.name, self._lb_router)
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

    class Pipeline(command_class(base)):  # type: ignore[misc]  # a dynamic base
        def execute(self, raise_on_error: bool = True) -> list[Any]:
            strategy = self._execution_strategy
            transaction = isinstance(strategy, redis.cluster.TransactionStrategy)
            if not transaction:
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

    class PipelineStrategy(base):
        __slots__ = ()

        def _send_cluster_commands(self, *args: Any, **kwargs: Any) -> Any:
            call = current.get()
            if not isinstance(call, SyncPipelineCall):
                return base._send_cluster_commands(self, *args, **kwargs)
            call.restart()
            try:
                return base._send_cluster_commands(self, *args, **kwargs)
            except BaseException as error:
                call.fail(error)
                raise

    return PipelineStrategy
