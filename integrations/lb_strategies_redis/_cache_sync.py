"""redis-py's client-side cache, which its synchronous client has: a hit is no node's answer.

The command is sent or not only after a node has been picked and a connection taken, so the
attempt is told at both places. Clients without a cache run none of this.
"""

from __future__ import annotations

from typing import Any

from ._attempt import Attempt, current
from ._pipeline_sync import connection_class


def caching_pool_class(base: Any) -> Any:
    """Return a pool with a client-side cache: who gets a connection may not have to use it."""

    class Pool(base):
        def get_connection(self, *args: Any, **kwargs: Any) -> Any:
            connection = base.get_connection(self, *args, **kwargs)
            attempt = current.get()
            if isinstance(attempt, Attempt):
                attempt.is_plain = attempt.is_sent = False
            return connection

    return Pool


def caching_connection_class(base: Any) -> Any:
    """Return a connection behind a client-side cache, which tells when it is used."""

    class Connection(connection_class(base)):  # type: ignore[misc]  # a dynamic base
        def send_command(self, *args: Any, **kwargs: Any) -> None:
            attempt = current.get()
            if isinstance(attempt, Attempt):
                attempt.is_sent = True
            base.send_command(self, *args, **kwargs)

    return Connection
