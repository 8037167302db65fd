"""kazoo's handlers of threads and results, which tell at what zxid each result was given.

kazoo sets ``client.last_zxid`` from the header of a reply right before it sets the result, in the
thread of the connection. So a result that looks at it while it is set knows its own zxid.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from threading import get_ident
from typing import Any, Final

import kazoo.client
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    SessionExpiredError,
)
from kazoo.handlers.threading import AsyncResult, SequentialThreadingHandler

from ._hosts import Address
from ._progress import Progress

UNANSWERED: Final = (ConnectionLoss, ConnectionClosedError, SessionExpiredError, AuthFailedError)
"""Errors that kazoo gives instead of an answer."""

_SKIP: Final = 1.0
"""Seconds after which a server that a session was to move to has to be one of several again."""


class StampedResult(AsyncResult):
    """A result that knows the zxid of its reply, and tells its handler of it first."""

    zxid = 0

    def __init__(self, handler: WriteHandler | ReadHandler) -> None:
        super().__init__(handler)
        self._stamp = handler.stamp

    def set(self, value: Any = None) -> None:
        """Store the value."""
        self._stamp(self, value, None)
        super().set(value)

    def set_exception(self, exception: BaseException) -> None:
        """Store the exception."""
        self._stamp(self, None, exception)
        super().set_exception(exception)


class WriteHandler(SequentialThreadingHandler):
    """Of the session that writes: what it is answered and told of goes into `progress`.

    Args:
        progress: of the session.
        learn_zxid: called with the zxid of every answer; must not wait.
    """

    client: kazoo.client.KazooClient

    def __init__(self, progress: Progress, learn_zxid: Callable[[int], None]) -> None:
        super().__init__()
        self._progress = progress
        self._learn_zxid = learn_zxid
        self._connection_thread = 0
        self._only: tuple[Address, ...] = ()
        self._only_until = 0.0

    def go_to(self, addresses: tuple[Address, ...]) -> None:
        """Have the next connection be to one of these addresses.

        When a connection breaks, kazoo goes on in the list of hosts as it was when it began with
        it, and looks for a new one at the end. Until then all other servers seem not to be there.
        """
        self._only_until = time.monotonic() + _SKIP
        self._only = addresses

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        """Return a new connection."""
        address = kwargs.get("address")  # only the client's own connection is made like that
        if address is not None and self._only:
            if address not in self._only and time.monotonic() < self._only_until:
                raise ConnectionRefusedError(errno.ECONNREFUSED, "the session moves elsewhere")
            self._only = ()
        return super().create_connection(*args, **kwargs)

    def select(self, *args: Any, **kwargs: Any) -> Any:
        """Wait for the sockets of the connection."""
        self._connection_thread = get_ident()
        return super().select(*args, **kwargs)

    def async_result(self) -> StampedResult:
        """Return a new result."""
        return StampedResult(self)

    def stamp(self, result: StampedResult, value: Any, error: BaseException | None) -> None:
        """Take in what `result` is about to be."""
        if get_ident() != self._connection_thread:
            return  # made of other results, in a callback
        if error is None or not isinstance(error, UNANSWERED):
            result.zxid = zxid = self.client.last_zxid
            self._progress.answered(value, zxid)
            self._learn_zxid(zxid)

    def dispatch_callback(self, callback: Any) -> None:
        """Have the callback of a watch called."""
        self._progress.fired()
        super().dispatch_callback(callback)


class ReadHandler(SequentialThreadingHandler):
    """Of a session that only reads: it has no threads, and callbacks must not wait."""

    client: kazoo.client.KazooClient

    def start(self) -> None:
        """Start nothing: without workers, callbacks are called where results are set."""

    def stop(self) -> None:
        """Stop nothing."""

    def async_result(self) -> StampedResult:
        """Return a new result."""
        return StampedResult(self)

    def stamp(self, result: StampedResult, value: Any, error: BaseException | None) -> None:
        """Take in what `result` is about to be."""
        result.zxid = self.client.last_zxid
