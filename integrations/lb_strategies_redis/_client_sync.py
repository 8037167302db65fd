"""The commands and pipelines of the synchronous client: one attempt after another."""

from __future__ import annotations

from collections.abc import Collection
from time import perf_counter
from typing import Any

from lb_strategies import Pick

from . import _seams_sync as seams
from ._addresses import split
from ._attempt import (
    BLOCKING,
    Attempt,
    Uncounted,
    connected,
    current,
    is_blocking,
    watch_replies,
)
from ._derive import adopt
from ._errors import unwrap
from ._library import library_of
from ._pipeline import PipelineCall
from ._pipeline_sync import SyncPipelineCall
from ._redirects import MOST_CONFIRMATIONS, Unconfirmed
from ._redirects_sync import Onward
from ._router import Router, Shard, primary_only
from ._selection import BalancedClient


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
            try:
                base.on_connect(self, connection)
            except BaseException:
                # Interrupted between sending and reading, it would go back to its pool, and who
                # uses it next would take the reply to HELLO for its own.
                connection.disconnect()
                raise
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
