"""One server of a ZooKeeper ensemble, its links, and the faults that can befall them."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kazoo.client import KazooClient

from bench.servers.process import Process, wait_until
from bench.servers.zookeeper_links import DelaysGiven, Network, ServerPorts, Trouble
from bench.servers.zookeeper_options import SUPER_USER
from bench.servers.zookeeper_words import (
    NotServingError,
    ServerStatus,
    admin_status,
    ask,
    opens_sessions,
    srvr,
)

HOST = "127.0.0.1"


@dataclass
class ZooKeeperServer:
    """One server of the ensemble; ``ZooKeeperServers`` makes it.

    Faults: ``pause`` / ``resume``, ``kill`` or ``terminate`` / ``restart`` and, on links,
    ``slow_down`` and ``cut`` / ``heal``.

    Attributes:
        server_id: Counts from 1; the upper byte of the ids of sessions that it opened.
        is_observer: Whether it has no vote and never leads.
        leader_serves: Whether it serves clients also while it leads.
        admin_port: Of the AdminServer; None without one.
        network: The ensemble's links, if there are any.
    """

    server_id: int
    is_observer: bool
    leader_serves: bool
    ports: ServerPorts
    admin_port: int | None
    command: Sequence[str]
    directory: Path
    cpus: Collection[int] | None
    network: Network | None
    is_paused: bool = False

    def __post_init__(self) -> None:
        self._process = self._start()

    @property
    def name(self) -> str:
        """A name for messages."""
        return f"server {self.server_id}"

    @property
    def endpoint(self) -> str:
        """``"host:port"`` for clients: of its link, if it has one."""
        return f"{HOST}:{self.ports.client_link or self.ports.client}"

    @property
    def own_endpoint(self) -> str:
        """``"host:port"`` of the server itself, past its link."""
        return f"{HOST}:{self.ports.client}"

    @property
    def admin_endpoint(self) -> str:
        """``"host:port"`` of the AdminServer, which no link delays."""
        if self.admin_port is None:
            raise RuntimeError("an AdminServer needs admin_server=True")
        return f"{HOST}:{self.admin_port}"

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended yet; a paused one is running."""
        return self._process.is_running

    @property
    def is_in_trouble(self) -> bool:
        """Whether its links are slowed down or cut."""
        return self.network is not None and self.network.trouble(self.server_id) != Trouble()

    @property
    def is_reachable(self) -> bool:
        """Whether it can answer the launcher, whose own connection passes no link."""
        return self.is_running and not self.is_paused

    def pause(self) -> None:
        """Freeze the server (SIGSTOP): connections stay open, nothing answers."""
        self._process.pause()
        self.is_paused = True

    def resume(self) -> None:
        """Undo ``pause``."""
        self._process.resume()
        self.is_paused = False

    def kill(self) -> None:
        """End the server at once; new connections are refused. Idempotent."""
        self._process.kill()
        self.is_paused = False

    def terminate(self) -> None:
        """End the server in order (SIGTERM). Idempotent."""
        self.resume()
        self._process.terminate()

    def restart(self, *, wait: bool = True) -> None:
        """Start an ended server again, with its data and ports.

        Args:
            wait: Return when it serves, which without a quorum it never does.
        """
        self.kill()
        self._process = self._start()
        if wait:
            self.wait_until_ready()

    def slow_down(
        self, seconds: float, jitter: float = 0.0, *, client: bool = True, peer: bool = True
    ) -> None:
        """Add ``seconds`` +- ``jitter`` (uniform) to all that the server sends.

        Args:
            seconds: Added to each round trip with it; replaces what was added before.
            jitter: At most ``seconds``.
            client: To clients.
            peer: To other servers.
        """
        trouble = self._network().trouble(self.server_id)
        trouble.client_delay, trouble.client_jitter = (seconds * client, jitter * client)
        trouble.peer_delay, trouble.peer_jitter = (seconds * peer, jitter * peer)
        self._network().apply()

    def cut(self, *, client: bool = True, peer: bool = True) -> None:
        """Reset its connections, in both directions, and refuse new ones."""
        trouble = self._network().trouble(self.server_id)
        trouble.is_client_cut, trouble.is_peer_cut = client, peer
        self._network().apply()

    def heal(self) -> None:
        """Undo ``slow_down`` and ``cut``."""
        self._network().heal(self.server_id)
        self._network().apply()

    def delays_given(self) -> DelaysGiven:
        """Return how long its links really held messages back.

        Raises:
            RuntimeError: The ensemble has no links.
        """
        return self._network().delays_given(self.server_id)

    def srvr(self) -> ServerStatus:
        """Return what the server says of itself by four-letter word.

        Raises:
            NotServingError: It has no leader, or leads but serves no clients.
            OSError: It does not answer.
        """
        return srvr((HOST, self.ports.client))

    def ask(self, word: str) -> str:
        """Return the whole answer to a four-letter word."""
        return ask((HOST, self.ports.client), word)

    def status(self) -> ServerStatus:
        """Return the same as ``srvr``, from the AdminServer if there is one."""
        if self.admin_port is None:
            return self.srvr()
        return admin_status((HOST, self.admin_port))

    @contextlib.contextmanager
    def client(self) -> Iterator[KazooClient]:
        """Give a kazoo client of this server, past its link, for whom no ACL counts."""
        client = KazooClient(self.own_endpoint, timeout=10.0)
        try:
            client.start(timeout=15.0)
            client.add_auth("digest", ":".join(SUPER_USER))
            yield client
        finally:
            client.stop()
            client.close()

    def is_ready(self) -> bool:
        """Return whether it opens sessions, or leads without serving clients.

        Raises:
            RuntimeError: It ended.
        """
        if not self.is_running:
            raise RuntimeError(f"{self.name} at {self.endpoint} ended")
        try:
            status = self.status()
        except (OSError, NotServingError):
            return False
        if status.is_leader and not self.leader_serves:
            return True
        return self.serves_clients()

    def serves_clients(self) -> bool:
        """Return whether it opens sessions now."""
        return self.is_reachable and opens_sessions((HOST, self.ports.client))

    def wait_until_ready(self, timeout: float = 30.0) -> None:
        """Return when the server is ready.

        Raises:
            RuntimeError: It ended, or is not within ``timeout`` seconds; the message holds the
                end of its log.
        """
        try:
            wait_until(self.is_ready, f"{self.name} serves", timeout=timeout)
        except RuntimeError as error:
            raise RuntimeError(f"{error}; end of its log:\n{self._process.log_tail()}") from error

    def _network(self) -> Network:
        if self.network is None:
            raise RuntimeError("links need client_rtt or peer_rtt, which may be 0")
        return self.network

    def _start(self) -> Process:
        return Process(self.command, log=self.directory / "log", cpus=self.cpus)
