"""The sessions that only read: a plain kazoo client for each server."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterable
from functools import partial
from time import perf_counter
from typing import Final

import kazoo.client
from kazoo.retry import KazooRetry

from ._handlers import ReadHandler
from ._reads import NotConnectedError
from ._ticker import Ticker

LOGGER: Final = logging.getLogger("lb_strategies.zookeeper.sessions")
"""Where the sessions log. They tell of every attempt to connect to a server that is down, so
warnings are off unless somebody wants them."""
LOGGER.setLevel(logging.ERROR)

_WAIT_FOR_FIRST: Final = 1.0
"""Seconds for which reads go to the session that writes because others have not connected yet."""
_CLOSE: Final = 0.5
"""Seconds that a server has to end a session."""

Connect = Callable[[str, ReadHandler, KazooRetry], kazoo.client.KazooClient]


class ReadSessions:
    """Keeps a session on each of several servers.

    Args:
        connect: makes a client of one server, with the handler and the retries given.
        ticker: for those that do not end in time.
    """

    def __init__(self, connect: Connect, ticker: Ticker) -> None:
        self._connect = connect
        self._ticker = ticker
        self._lock = threading.Lock()
        self._sessions: dict[str, kazoo.client.KazooClient] = {}
        self._ready_at: float | None = None
        """When to wait no longer for those that never connected; None if that is over."""

    def keep(self, members: Iterable[str]) -> None:
        """Have a session on each of `members`, and on nobody else; does not wait for new ones."""
        wanted = tuple(members)
        with self._lock:
            gone = {m: s for m, s in self._sessions.items() if m not in wanted}
            kept = {m: s for m, s in self._sessions.items() if m in wanted}
            if not kept:
                self._ready_at = perf_counter() + _WAIT_FOR_FIRST
            for member in wanted:
                if member not in kept:
                    kept[member] = self._open(member)
            self._sessions = kept
        for session in gone.values():
            self._close(session)

    def _open(self, member: str) -> kazoo.client.KazooClient:
        handler = ReadHandler()
        retry = KazooRetry(max_tries=-1, delay=0.05, max_delay=0.5)
        session = handler.client = self._connect(member, handler, retry)
        session.start_async()
        return session

    def _close(self, session: kazoo.client.KazooClient) -> None:
        """End a session for good, without waiting for a server that does not answer."""
        give_up = partial(break_connection, session)
        self._ticker.call_at(perf_counter() + (_CLOSE if session.connected else 0.0), give_up)
        with contextlib.suppress(Exception):
            session.stop()
            session.close()
        self._ticker.forget(give_up)

    @property
    def are_ready(self) -> bool:
        """Whether reads can be spread: some are connected, and all had time to."""
        connected = [session.connected for session in self._sessions.values()]
        if self._ready_at is not None:
            if not all(connected) and perf_counter() < self._ready_at:
                return False
            self._ready_at = None
        return any(connected)

    def get(self, member: object) -> kazoo.client.KazooClient:
        """Return the session on `member`.

        Raises:
            NotConnectedError: there is none, or it is not connected now.
        """
        session = self._sessions.get(member)  # type: ignore[call-overload]
        if session is None or not session.connected:
            raise NotConnectedError(f"no session on {member} now")
        return session

    def drop(self, member: str) -> None:
        """Break the connection to `member`, so that what waits for it there fails at once."""
        session = self._sessions.get(member)
        if session is not None and session.connected:
            break_connection(session)

    def add_auth(self, scheme: str, credential: str) -> None:
        """Authenticate everywhere, now and after each connection; does not wait."""
        for session in list(self._sessions.values()):
            session.add_auth_async(scheme, credential)


def break_connection(client: kazoo.client.KazooClient) -> None:
    """Have the connection of `client` fail now; it connects again by itself."""
    connection = client._connection._socket
    if connection is not None:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
