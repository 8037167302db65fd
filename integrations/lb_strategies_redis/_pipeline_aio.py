"""Pipelines and transactions of the asyncio client: one pick and one sample for each node."""

from __future__ import annotations

import contextlib
from time import perf_counter
from typing import Any

from ._attempt import current, is_blocking, leave
from ._derive import adopt
from ._errors import NO_PERMISSION, StandIn, has_lost_connection, is_a, is_node_failure, unfit_reply
from ._library import library_of
from ._pipeline import PipelineCall
from ._router import Router


def pipeline_class(base: Any) -> Any:
    """Return a pipeline that takes one pick for each node."""
    if not hasattr(library_of(base).aio_cluster, "PipelineStrategy"):  # the pipeline runs itself
        base = pipeline_strategy_class(base)

    class Pipeline(base):
        __slots__ = ()

        async def execute(
            self, raise_on_error: bool = True, allow_redirections: bool = True
        ) -> list[Any]:
            client = self.cluster_client if hasattr(self, "cluster_client") else self._client
            strategy = getattr(self, "_execution_strategy", None)
            call: PipelineCall
            if strategy is not None and self._transaction:
                call = TransactionCall(client._lb_router)
            else:
                call = PipelineCall(client._lb_router)
                call.lag = client._lb_lag
                if strategy is not None:
                    adopt(strategy, pipeline_strategy_class)
            token = current.set(call)
            try:
                results = await base.execute(self, raise_on_error, allow_redirections)
                call.end(None)
            except StandIn as error:  # redirections were not allowed
                raise error.cause from None
            except BaseException as error:
                call.end(error)
                raise
            finally:
                leave(token)
                call.release()
            return [r.cause if isinstance(r, StandIn) else r for r in results]

    return Pipeline


def pipeline_strategy_class(base: Any) -> Any:
    """Return what runs a pipeline that is no transaction, each attempt choosing anew."""

    class PipelineStrategy(base):
        __slots__ = ()

        async def _execute(self, *args: Any, **kwargs: Any) -> Any:
            call = current.get()
            if isinstance(call, PipelineCall):
                call.restart()
            try:
                return await base._execute(self, *args, **kwargs)
            except StandIn as error:  # every node of a shard has failed: the rest is for redis-py
                error.cause.args = error.args
                raise error.cause from None

    return PipelineStrategy


class TransactionCall(PipelineCall):
    """A transaction: load on its primary, but no sample."""

    def hop(self, name: str, router: Router) -> None:
        """Note that the transaction goes to node `name`."""
        self.release()
        self._picks[name] = router.balancer.begin(name, now=perf_counter(), operation="transaction")

    def end(self, error: BaseException | None) -> None:
        """Give the pick back: the primary has answered, or failed."""
        for name in list(self._picks):
            pick = self._picks.pop(name)
            self.finish(pick, error, started_at=pick.started_at, is_timed=False, lag=self.lag)


def node_class(base: Any) -> Any:
    """Return a cluster node that takes its part of a pipeline as one request."""

    class Node(base):
        __slots__ = ()

        async def disconnect_free_connections(self) -> None:
            for connection in self._free:
                connection.mark_for_reconnect()
            # Each is out of the pool meanwhile, or another task could connect on it.
            for _ in range(len(self._free)):
                if not self._free:
                    return
                connection = self._free.popleft()
                try:
                    with contextlib.suppress(Exception):  # as redis-py does
                        await connection.disconnect()
                finally:
                    self._free.append(connection)

        async def execute_pipeline(self, commands: list[Any]) -> bool:
            call = current.get()
            if not isinstance(call, PipelineCall):
                return await base.execute_pipeline(self, commands)
            call.is_grouping = False
            pick = call.take(self.name)
            pick.relabel("pipeline", len(commands))
            reads = [command for command in commands if call.router.is_read(command.args[0])]
            only_reads = len(reads) == len(commands)
            is_timed = only_reads and not any(is_blocking(command.args) for command in reads)
            lag = call.lag
            if lag is not None:
                lag.watch()
            started_at = perf_counter()
            error: BaseException | None = None
            try:
                failed = await base.execute_pipeline(self, commands)
            except Exception as raised:
                # Nothing was answered. Reads can go elsewhere; the rest is for redis-py.
                error = raised
                failed = True
                if not (only_reads and is_node_failure(raised)):
                    raise
                for command in commands:
                    command.result = raised
            except BaseException as raised:
                error = raised
                raise
            else:
                _discard_late_replies(commands)
                error = next((c.result for c in commands if _is_failed(c)), None)
            finally:
                call.finish(pick, error, started_at=started_at, is_timed=is_timed, lag=lag)
            if failed:
                # Of the errors in a reply, redis-py runs only a few again: make it those.
                is_unfit = error is not None and call.has_alternative()
                for command in reads:
                    result = command.result
                    if isinstance(result, Exception) and (is_unfit or is_a(result, NO_PERMISSION)):
                        command.result = unfit_reply(result, call.router.library)
            return failed

    return Node


def _discard_late_replies(commands: list[Any]) -> None:
    """Give every command after the one that lost the connection that one's error.

    redis-py's RESP3 parser reads on from a connection that a time-out has closed. If the replies
    have come in meanwhile, each command would get the reply of the one before it.
    """
    lost: Exception | None = None
    for command in commands:
        if lost is not None:
            command.result = lost
        elif isinstance(command.result, Exception) and has_lost_connection(command.result):
            lost = command.result


def _is_failed(command: Any) -> bool:
    return isinstance(command.result, Exception) and is_node_failure(command.result)
