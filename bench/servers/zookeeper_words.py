"""What a ZooKeeper server says of itself: by four-letter word, or by its AdminServer.

Both answer without the others' help, also when there is no quorum. ``opens_sessions`` asks for
more: a session is a write, so a server that opens one has a leader that has a quorum.
"""

from __future__ import annotations

import json
import socket
import struct
import urllib.error
import urllib.request
from dataclasses import dataclass

TIMEOUT = 2.0
"""Seconds to wait for an answer."""

Address = tuple[str, int]

# ConnectRequest: protocol version, last zxid seen, timeout in ms, session id, password; then
# "read-only is fine", which newer clients append. All with the length in front.
_CONNECT = struct.pack(">iqiqi16s?", 0, 0, 4000, 0, 16, b"", False)
# RequestHeader: xid, and -11 for the end of the session.
_CLOSE = struct.pack(">ii", 1, -11)


class NotServingError(RuntimeError):
    """The server answered that it serves nobody: it has no leader, or leads and does no more."""


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """What one server says of itself.

    Attributes:
        mode: ``"leader"``, ``"follower"``, ``"observer"`` or ``"standalone"``.
        zxid: The last transaction applied; its upper half is the leader's epoch.
        connections: Of clients, this one's included.
        received: Packets from clients since the server's start.
        sent: Packets to clients.
        outstanding: Requests that are being worked on.
        version: As printed, such as ``"3.8.0"``.
    """

    mode: str
    zxid: int
    connections: int
    received: int
    sent: int
    outstanding: int
    version: str

    @property
    def epoch(self) -> int:
        """The epoch of the last transaction; a follower's is old until there is a new one."""
        return self.zxid >> 32

    @property
    def is_leader(self) -> bool:
        """Whether writes are decided here."""
        return self.mode in ("leader", "standalone")


def ask(address: Address, word: str, *, timeout: float = TIMEOUT) -> str:
    """Send a four-letter word; return the whole answer.

    Raises:
        OSError: No connection, or no answer within ``timeout`` seconds.
    """
    with socket.create_connection(address, timeout=timeout) as connection:
        connection.sendall(word.encode())
        return b"".join(iter(lambda: connection.recv(4096), b"")).decode()


def srvr(address: Address) -> ServerStatus:
    """Ask a server by four-letter word.

    Raises:
        NotServingError: It knows no leader, or leads but serves no clients.
        OSError: It does not answer.
    """
    answer = ask(address, "srvr")
    found = dict(line.split(": ", 1) for line in answer.splitlines() if ": " in line)
    if "Mode" not in found:
        raise NotServingError(answer.strip() or "the connection was closed")
    return ServerStatus(
        mode=found["Mode"],
        zxid=int(found["Zxid"], 16),
        connections=int(found["Connections"]),
        received=int(found["Received"]),
        sent=int(found["Sent"]),
        outstanding=int(found["Outstanding"]),
        version=_numbers(found["Zookeeper version"]),
    )


def admin_status(address: Address) -> ServerStatus:
    """Ask a server's AdminServer, which also tells of a leader that serves no clients.

    Raises:
        NotServingError: It knows no leader.
        OSError: It does not answer.
    """
    host, port = address
    # No proxy of the environment may come in between.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    url = f"http://{host}:{port}/commands/server_stats"
    try:
        with opener.open(url, timeout=TIMEOUT) as response:
            answer = json.load(response)
    except urllib.error.HTTPError as error:
        raise NotServingError(str(error)) from error
    if answer.get("error"):
        raise NotServingError(answer["error"])
    stats = answer["server_stats"]
    return ServerStatus(
        mode=stats["server_state"],
        zxid=stats["last_processed_zxid"],
        connections=stats["num_alive_client_connections"],
        received=stats["packets_received"],
        sent=stats["packets_sent"],
        outstanding=stats["outstanding_requests"],
        version=_numbers(answer["version"]),
    )


def opens_sessions(address: Address) -> bool:
    """Return whether the server opens a session, and end it."""
    try:
        with socket.create_connection(address, timeout=TIMEOUT) as connection:
            connection.sendall(_framed(_CONNECT))
            # ConnectResponse: length, protocol version, timeout; 0 if it was refused.
            answer = connection.recv(12, socket.MSG_WAITALL)
            if len(answer) < 12 or struct.unpack(">iii", answer)[2] == 0:
                return False
            connection.sendall(_framed(_CLOSE))
            while connection.recv(4096):
                pass
    except OSError:
        return False
    return True


def _framed(message: bytes) -> bytes:
    return struct.pack(">i", len(message)) + message


def _numbers(version: str) -> str:
    return version.split("-")[0].split(",")[0]
