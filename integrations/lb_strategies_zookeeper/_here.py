"""Reads on the session that writes: in its order, or behind a write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kazoo.exceptions import ConnectionLoss
from kazoo.handlers.threading import AsyncResult

from ._handlers import UNANSWERED
from ._reads import Read, Sending
from ._results import RoutedRead

if TYPE_CHECKING:
    from ._routing import Routing

_FENCES: Final = 3
"""How often a fence is tried; it changes nothing, so it can be sent again."""


def read_here(
    routing: Routing, read: Read, result: AsyncResult, *, syncs: bool | None = None
) -> None:
    """Do `read` on the session that writes, and set `result` at the end."""
    has_synced = read.syncs if syncs is None else syncs
    sending = Sending(routing.client, read, syncs=has_synced)

    def go_on(_: AsyncResult) -> None:
        try:
            if sending.is_behind(read) and not has_synced:
                read_here(routing, read, result, syncs=True)
                return
            answer = routing.answer(sending, read)
        except UNANSWERED as error:
            # What it was to follow has failed as well, so there is no order to be kept.
            if routing.is_started and routing.sessions.are_ready:
                RoutedRead(routing, read, result)
            else:
                result.set_exception(error)
        except Exception as error:
            result.set_exception(error)
        else:
            result.set(read.method.finish(answer.value))

    sending.result.rawlink(go_on)


def fenced_read(
    routing: Routing, read: Read, result: AsyncResult, *, attempts: int = _FENCES
) -> None:
    """Do `read` after a write that changes nothing, and set `result` at the end.

    To delete what does not exist fails by a transaction of its own, which needs a majority; a
    leader that has been deposed without knowing it cannot give it.
    """
    fence = routing.client.delete_async(routing.fence)

    def go_on(_: AsyncResult) -> None:
        if not isinstance(fence.exception, UNANSWERED):
            read.zxid = max(read.zxid, fence.zxid)
            routing.begin(read, result)
        elif attempts > 1 and isinstance(fence.exception, ConnectionLoss):
            fenced_read(routing, read, result, attempts=attempts - 1)
        else:
            result.set_exception(fence.exception)

    fence.rawlink(go_on)
