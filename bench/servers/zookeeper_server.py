"""One server of a ZooKeeper ensemble, its links, and the faults that can befall them."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kazoo.client import KazooClient

from bench.servers.member import Member
from bench.servers.process import Process
from bench.servers.zookeeper_links import DelaysGiven, Network, ServerLinks, ServerPorts
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
class ZooKeeperServer(Member):
    """One server of the ensemble; ``ZooKeeperServers`` makes it.

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

    def __post_init__(self) -> None:
        self.name = f"server {self.server_id}"
        self._launch()

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

    def delays_given(self) -> DelaysGiven:
        """Return how long its links really held messages back.

        Raises:
            RuntimeError: The ensemble has no links.
        """
        self._links()
        assert self.network is not None
        return self.network.delays_given(self.server_id)

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

    def _own_links(self) -> ServerLinks | None:
        return None if self.network is None else self.network.links_of(self.server_id)

    def _apply_links(self) -> None:
        if self.network is not None:
            self.network.apply()

    def _start(self) -> Process:
        return Process(self.command, log=self.directory / "log", cpus=self.cpus)
