"""The commands of the asyncio client: one attempt after another."""

from __future__ import annotations

from collections.abc import Collection
from time import perf_counter
from typing import Any

from lb_strategies import Pick

from . import _seams_aio as seams
from ._addresses import split
from ._attempt import (
    BLOCKING,
    Attempt,
    Uncounted,
    connected,
    current,
    is_blocking,
    leave,
    watch_replies,
)
from ._derive import adopt
from ._errors import TRANSPORT, is_a, unwrap
from ._lag import LoopLag
from ._manager_aio import rereading
from ._pipeline import PipelineCall
from ._pipeline_aio import pipeline_class
from ._policies import has_one_key
from ._redirects import MOST_CONFIRMATIONS, Unconfirmed
from ._redirects_aio import Asking
from ._router import Router, Shard, primary_only
from ._selection import BalancedClient


def client_class(base: Any) -> Any:
    """Return a cluster client whose commands and pipelines are routed."""
    base = seams.client(base)
    mixin = () if issubclass(base, BalancedClient) else (BalancedClient,)

    class Client(*mixin, base):  # type: ignore[misc]  # a dynamic base
        _initialize: bool
        _lb_router: Router
        _lb_lag: LoopLag
        _lb_one_key: dict[str, bool]
        _lb_last_failed: str | None

        async def get_nodes_from_slot(self, command: str, *args: Any) -> list[Any]:
            manager, router = self.nodes_manager, self._lb_router
            if (command not in router.reads and not router.is_read(command)) or (
                router in primary_only.get()
            ):
                return [manager.get_node_from_slot(await self._determine_slot(command, *args))]
            # Two coroutines less for nearly every read there is.
            one_key = self._lb_one_key.get(command)
            if one_key is None:
                one_key = has_one_key(self.commands_parser.commands, command)
                self._lb_one_key[command] = one_key
            if one_key and args:
                slot = self.keyslot(args[0])
            else:
                slot = await self._determine_slot(command, *args)
            shard = router.shard(slot, manager.slots_cache)
            call = current.get()
            if isinstance(call, PipelineCall) and call.is_grouping:
                return [call.choose(shard)]
            return [shard]

        async def _execute_command(self, target_node: Any, *args: Any, **kwargs: Any) -> Any:
            outer = current.get()
            tried: Collection[str] = ()
            denied: tuple[Pick, ...] = ()
            pipeline: PipelineCall | None = None
            shard = target_node if type(target_node) is Shard else None
            if args[0] in BLOCKING and is_blocking(args):
                node = target_node if shard is None else shard.choose()
                return await self._lb_wait(node, args, kwargs)
            if outer is not None:
                tried = outer.tried
                if shard is not None and isinstance(outer, PipelineCall):
                    pipeline = outer
                    pipeline.refuse(shard)
            lag = self._lb_lag
            lag.has_requests = True
            if lag.is_idle:
                lag.start()
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
                    response = await base._execute_command(self, target_node, *args, **kwargs)
                except BaseException as error:
                    leave(token)
                    if attempt.fail(error, lag):
                        if is_a(error, TRANSPORT):
                            # One replica's failures must not keep reloading the topology,
                            # and a client that was closed for good meanwhile stays so.
                            may_refresh = self._lb_router.may_refresh()
                            self._initialize = may_refresh or seams.is_closed(self)
                            if self._initialize:
                                self._lb_last_failed = target_node.name
                        tried = (*attempt.tried, str(attempt.pick.endpoint))
                        denied = attempt.denied
                        continue
                    if isinstance(error, Unconfirmed) and confirmations < MOST_CONFIRMATIONS:
                        confirmations += 1
                        await self.nodes_manager._lb_confirm(error.cause)
                        continue
                    cause = unwrap(error)
                    if pipeline is not None and shard is not None:
                        cause = pipeline.give_up(shard, cause)
                    if cause is error:
                        raise
                    raise cause from None
                current.reset(token)
                attempt.succeed(lag)
                return response

        async def _lb_wait(self, node: Any, args: Any, kwargs: Any, confirmations: int = 0) -> Any:
            token = current.set(Uncounted())
            try:
                return await base._execute_command(self, node, *args, **kwargs)
            except Unconfirmed as error:
                if confirmations == MOST_CONFIRMATIONS:
                    raise error.cause from None
                await self.nodes_manager._lb_confirm(error.cause)
            finally:
                leave(token)
            return await self._lb_wait(node, args, kwargs, confirmations + 1)

        async def initialize(
            self,
            additional_startup_nodes_info: Any = None,
            last_failed_node_name: str | None = None,
        ) -> Any:
            # The refresh that a failed read asked for must not begin at the node that failed.
            last_failed = last_failed_node_name or self._lb_last_failed
            self._lb_last_failed = None
            token = rereading.set(bool(self.nodes_manager.slots_cache))
            try:
                await base.initialize(self, additional_startup_nodes_info, last_failed)
            finally:
                leave(token)
            try:
                self._lb_router.check_reads(self.commands_parser.commands)
            except ValueError:
                await base.aclose(self)  # which has the next command come here again
                raise
            return self

        async def aclose(self) -> None:
            if current.get() is not None:
                # In the middle of a command redis-py means a refresh by it: see `rereading`.
                self._initialize = True
                await seams.spare(self)
                return
            if self.nodes_manager.slots_cache:
                # While a refresh is due, redis-py takes an open client for a closed one.
                self._initialize = False
            await base.aclose(self)

        def get_node(self, host: Any = None, port: Any = None, node_name: Any = None) -> Any:
            node = base.get_node(self, host, port, node_name)
            attempt = current.get()
            if not isinstance(attempt, Attempt):
                return node
            # During a command: an ASK redirect.
            if node is None:  # ... to a node that a refresh has just dropped
                node = self.nodes_manager._lb_add(*split(node_name))
            attempt.hop(node.name, self._lb_router)
            return Asking(node)

        async def on_connect(self, connection: Any) -> None:
            watch_replies(connection, self.nodes_manager)  # hiredis asks only once, on connecting
            await base.on_connect(self, connection)
            watch_replies(connection, self.nodes_manager)  # RESP3 brings a parser of its own
            connected()

        async def _execute_pipeline_by_slot(self, command: str, slots_to_args: Any) -> list[Any]:
            if not self._lb_router.is_read(command):
                return await base._execute_pipeline_by_slot(self, command, slots_to_args)
            pipe = self.pipeline()  # by key, not by node: so the strategy has its say
            for args in slots_to_args.values():
                pipe.execute_command(command, *args)
            return await pipe.execute()

        def pipeline(self, *args: Any, **kwargs: Any) -> Any:
            pipe = base.pipeline(self, *args, **kwargs)
            adopt(pipe, pipeline_class)
            return pipe

    return Client
