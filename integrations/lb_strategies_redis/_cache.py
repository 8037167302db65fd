"""The client-side cache: a hit is no node's answer.

redis-py has one in its synchronous client, valkey-py in both. A command is sent or not only after
a node has been picked and a connection taken, so the attempt is told. Clients without a cache run
none of this.
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


def asyncio_connection_class(base: Any) -> Any:
    """Return a connection of valkey-py's asyncio client, which looks into its cache itself."""

    class Connection(base):
        __slots__ = ()

        async def _get_from_local_cache(self, command: Any) -> Any:
            if not self.is_connected:  # valkey-py looks for invalidations where there is no socket
                return None
            response = await base._get_from_local_cache(self, command)
            attempt = current.get()
            if response is not None and isinstance(attempt, Attempt):
                attempt.is_plain = attempt.is_sent = False
            return response

    return Connection
