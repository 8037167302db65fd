"""Asking a server for its status, over a connection of its own."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from http.client import HTTPConnection
from typing import Final

from lb_strategies import MemberStatus

from ._hosts import split_endpoint
from ._status import ADMIN_PATH, WORD, parse_admin, parse_word

Dial = Callable[[str, int, float], socket.socket]
"""Connects to a host and port within so many seconds, with TLS if that is how servers listen."""

_MOST: Final = 1 << 20
"""Bytes that a server may answer."""


class Probe:
    """Asks servers what they are.

    Args:
        dial: makes a connection for four-letter words.
        admin_port: of the servers' AdminServers, which are asked instead; None to ask none.
    """

    def __init__(self, dial: Dial, admin_port: int | None = None) -> None:
        self._dial = dial
        self._admin_port = admin_port

    def ask(self, member: str, timeout: float) -> MemberStatus:
        """Ask `member`, within `timeout` seconds.

        Raises:
            StatusRefusedError: it does not tell.
            OSError: it does not answer.
            ValueError: it answers something else.
        """
        host, port = split_endpoint(member)
        if self._admin_port is not None:
            return parse_admin(member, _get(host, self._admin_port, timeout))
        deadline = time.monotonic() + timeout
        with self._dial(host, port, timeout) as connection:
            connection.settimeout(max(0.001, deadline - time.monotonic()))
            connection.sendall(WORD)
            return parse_word(member, _read_all(connection, deadline).decode(errors="replace"))


def _read_all(connection: socket.socket, deadline: float) -> bytes:
    parts = bytearray()
    while len(parts) < _MOST:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        part = connection.recv(4096)
        if not part:
            break
        parts += part
    return bytes(parts)


def _get(host: str, port: int, timeout: float) -> bytes:
    connection = HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", ADMIN_PATH)
        return connection.getresponse().read(_MOST)
    finally:
        connection.close()
