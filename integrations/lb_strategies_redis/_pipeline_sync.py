"""Pipelines of the synchronous client: one pick and one sample for each node.

redis-py writes to all nodes first and then reads them one after another. A node whose
replies were already waiting when its turn came was answering while another one was being
read: the elapsed time is then only an upper bound, and no sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

from lb_strategies import Pick

from ._attempt import current, is_blocking
from ._derive import adopt, release
from ._errors import TRANSPORT, UNFIT_REPLY, is_a, is_node_failure, unfit_reply
from ._pipeline import PipelineCall


class NodePart:
    """The commands of one pipeline that went to one node.

    Args:
        call: the pipeline.
        pick: what is in flight for it.
    """

    def __init__(self, call: SyncPipelineCall, pick: Pick) -> None:
        self._call = call
        self._pick = pick
        self._connection: Any = None
        self._commands: Sequence[Sequence[object]] = ()
        self._replies = 0
        self._is_timed = False
        self._error: BaseException | None = None
        self._sent_at = pick.started_at
        self._is_open = True

    def send(self, connection: Any, commands: Sequence[Sequence[object]]) -> None:
        """Note that these commands are about to be written to `connection`."""
        if not self._is_open:
            return
        self._commands = commands
        self._replies = 0
        is_read = self._call.router.is_read
        self._is_timed = all(is_read(args[0]) and not is_blocking(args) for args in commands)
        self._pick.relabel("pipeline", len(commands))
        self._connection = connection
        connection._lb_part = self
        adopt(connection, reading_connection_class)
        self._sent_at = perf_counter()

    def before_reply(self) -> None:
        """Look, before the first reply is read, whether it has been waiting."""
        if self._replies == 0 and self._call.is_spread and self._connection.can_read(0):
            self._is_timed = False

    def answered(self) -> None:
        """Count a reply."""
        self._replies += 1
        if self._replies >= len(self._commands):
            self.close()

    def failed(self, error: BaseException) -> BaseException:
        """Count a reply that is an error and return what to raise for it."""
        read = self._call.router.is_read(self._commands[self._replies][0])
        if self._error is None or is_node_failure(error):
            self._error = error
        self.answered()
        if is_a(error, TRANSPORT):
            self.close()
        if is_a(error, UNFIT_REPLY) and isinstance(error, Exception) and read:
            # Of the error replies, redis-py runs only a few again: make it one of them.
            return unfit_reply(error, self._call.router.library)
        return error

    def close(self, error: BaseException | None = None) -> None:
        """Give the pick back, as a sample if the duration is known."""
        if not self._is_open:
            return
        self._is_open = False
        if self._connection is not None:
            release(self._connection, reading_connection_class)
        self._call.finish(
            self._pick,
            self._error if error is None else error,
            started_at=self._sent_at,
            is_timed=self._is_timed and self._replies == len(self._commands),
        )


class SyncPipelineCall(PipelineCall):
    """A pipeline, or a transaction, on its way through the synchronous client.

    Args:
        router: of the client.
        is_timed: whether the durations may teach; those of transactions do not.
    """

    def __init__(self, router: Any, *, is_timed: bool) -> None:
        super().__init__(router)
        self._is_timed = is_timed
        self._parts: dict[str, NodePart] = {}
        self._last: NodePart | None = None

    @property
    def is_spread(self) -> bool:
        """Whether several nodes take part."""
        return len(self._parts) > 1

    def begin(self, name: str) -> None:
        """Note that a connection to node `name` is about to be used."""
        if name not in self._parts:
            self._parts[name] = NodePart(self, self.take(name))
        self._last = self._parts[name]

    def sending(self, connection: Any, commands: Sequence[Sequence[object]]) -> None:
        """Note that a node's commands are about to be written."""
        self.is_grouping = False
        part = self._parts.get(f"{connection.host}:{connection.port}")
        if part is not None and self._is_timed:
            part.send(connection, commands)

    def fail(self, error: BaseException) -> bool:
        """Blame the node that was being connected to, if that is what went wrong.

        Returns:
            Whether to begin anew at once: nothing has been sent, the node had not failed this
            pipeline before, and there are others.
        """
        if self._last is None or not self.is_grouping:
            return False
        tried = len(self.tried)
        self._last.close(error)
        return len(self.tried) > tried and self.has_alternative()

    def release(self) -> None:
        """Give everything back."""
        for part in self._parts.values():
            part.close()
        self._parts.clear()
        self._last = None
        super().release()


def connection_class(base: Any) -> Any:
    """Return a connection that tells when the commands of a pipeline are sent.

    ``pack_commands`` is used for nothing else, so single commands cost nothing.
    """

    class Connection(base):
        def pack_commands(self, commands: Any) -> Any:
            commands = list(commands)
            packed = base.pack_commands(self, commands)
            call = current.get()
            if isinstance(call, SyncPipelineCall):
                call.sending(self, commands)
            return packed

    return Connection


def reading_connection_class(base: Any) -> Any:
    """Return a connection that is about to read the replies to a pipeline."""

    class ReadingConnection(base):
        _lb_part: NodePart

        def read_response(self, *args: Any, **kwargs: Any) -> Any:
            part = self._lb_part
            try:
                part.before_reply()
                response = base.read_response(self, *args, **kwargs)
            except BaseException as error:
                raised = part.failed(error)
                if raised is error:
                    raise
                raise raised from error
            part.answered()
            return response

    return ReadingConnection
