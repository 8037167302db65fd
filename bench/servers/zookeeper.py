"""A real ZooKeeper ensemble on free loopback ports.

::

    with ZooKeeperServers(servers=3) as zookeeper:
        zookeeper.hosts                         # "127.0.0.1:23017,...", for clients
        zookeeper.leader().pause()              # or kill, terminate / resume, restart
        zookeeper.followers[0].srvr()           # mode, zxid, connections, ...
        zookeeper.change_leader()
        zookeeper.repair()                      # every fault is undone

    with ZooKeeperServers(servers=5, client_rtt=0.001, peer_rtt=0.002) as zookeeper:
        zookeeper.followers[0].slow_down(0.008, jitter=0.002)  # or cut(); undone by heal()
        zookeeper.round_trips_given()           # what the links really added, in seconds

With ``client_rtt`` or ``peer_rtt`` every client link and every link between two servers passes a
proxy, all in one process. Half of a round trip is given to each direction. Administration goes
past the links. ``/zookeeper/config`` then still names each server's own client port at that server
itself, and the link everywhere else.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.servers.binaries import ZooKeeperInstallation, find_zookeeper
from bench.servers.links import mean_delay
from bench.servers.process import free_ports, wait_until
from bench.servers.zookeeper_links import Network, ServerPorts, server_name
from bench.servers.zookeeper_options import common_options, java_command, write_config
from bench.servers.zookeeper_server import HOST, ZooKeeperServer
from bench.servers.zookeeper_words import NotServingError, ServerStatus

__all__ = ["NotServingError", "ServerStatus", "ZooKeeperServer", "ZooKeeperServers"]

START_ATTEMPTS = 3


class ZooKeeperServers:
    """Starts a ZooKeeper ensemble and always stops it.

    Entering returns when one server leads and all others serve.

    Args:
        servers: Number of voting servers.
        observers: Number of those that only follow; their ids come after the voters'.
        installation: The server; what ``find_zookeeper`` finds when None.
        leader_serves: Whether the leader serves clients. If not, it does not tell by four-letter
            word that it leads either.
        tick: Seconds of the ensemble's basic unit of time; sessions last at least twice as long.
        sync_limit: Ticks of silence after which leader and followers give each other up.
        client_rtt: Seconds that the links to clients add to a round trip; see the module.
        peer_rtt: Seconds that the links between servers add.
        four_letter_words: Those that servers answer beside ``srvr``, which no whitelist leaves out.
        admin_server: Run the AdminServer, at each server's ``admin_endpoint``; always on where the
            leader serves nobody, since the launcher could not find it otherwise.
        options: More of ZooKeeper's options, as in its configuration file.
        java_options: More of Java's, such as ``"-Xmx256m"``.
        seed: Decides the jitter of the links.
        cpus: CPUs that the servers and the proxies may use; all when None.
    """

    def __init__(
        self,
        *,
        servers: int = 3,
        observers: int = 0,
        installation: ZooKeeperInstallation | None = None,
        leader_serves: bool = True,
        tick: float = 0.5,
        sync_limit: int = 5,
        client_rtt: float | None = None,
        peer_rtt: float | None = None,
        four_letter_words: Sequence[str] = (),
        admin_server: bool = False,
        options: dict[str, str] | None = None,
        java_options: Sequence[str] = (),
        seed: int = 0,
        cpus: Collection[int] | None = None,
    ) -> None:
        if servers < 1 or observers < 0:
            raise ValueError(f"servers={servers} must be >= 1, observers={observers} >= 0")
        self.installation = installation or find_zookeeper()
        self.servers: list[ZooKeeperServer] = []
        """All of them, by id; observers are the last ones."""
        self.network: Network | None = None
        """The links, if there are any."""
        self._voters = servers
        self._size = servers + observers
        self._has_links = client_rtt is not None or peer_rtt is not None
        self._rtts = (client_rtt or 0.0, peer_rtt or 0.0)
        self._leader_serves = leader_serves
        self._has_admin = admin_server or not leader_serves
        self._java_options = java_options
        self._options = common_options(
            tick=tick,
            sync_limit=sync_limit,
            leader_serves=leader_serves,
            four_letter_words=four_letter_words,
        ) | (options or {})
        self._seed = seed
        self._cpus = cpus
        self._stack = ExitStack()

    @property
    def endpoints(self) -> list[str]:
        """``"host:port"`` of every server, observers too, for clients."""
        return [server.endpoint for server in self.servers]

    @property
    def hosts(self) -> str:
        """The endpoints as one connection string."""
        return ",".join(self.endpoints)

    @property
    def voters(self) -> list[ZooKeeperServer]:
        """The servers that are no observers."""
        return [server for server in self.servers if not server.is_observer]

    @property
    def observers(self) -> list[ZooKeeperServer]:
        """The servers that have no vote."""
        return [server for server in self.servers if server.is_observer]

    @property
    def followers(self) -> list[ZooKeeperServer]:
        """The voting servers except the leader."""
        leader = self.leader()
        return [server for server in self.voters if server is not leader]

    @property
    def pids(self) -> list[int]:
        """The process ids of the servers."""
        return [server.pid for server in self.servers]

    def server(self, server_id: int) -> ZooKeeperServer:
        """Return the server with this id; ``KeyError`` if there is none."""
        for server in self.servers:
            if server.server_id == server_id:
                return server
        raise KeyError(f"no server {server_id}")

    def __enter__(self) -> Self:
        for attempt in range(START_ATTEMPTS):
            with ExitStack() as stack:
                directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="lb-zookeeper-"))
                try:
                    self._start(stack, Path(directory))
                except RuntimeError:
                    # A port can be taken between looking and binding; the server then ends.
                    if attempt + 1 == START_ATTEMPTS:
                        raise
                else:
                    self._stack = stack.pop_all()
                    return self
        raise AssertionError("the last attempt returns or raises")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def stop(self) -> None:
        """End every server, also paused ones."""
        for server in self.servers:
            server.kill()

    def leader(self, timeout: float = 15.0) -> ZooKeeperServer:
        """Return the server that says it leads, in the highest epoch; wait for one.

        Raises:
            RuntimeError: There is none within ``timeout`` seconds.
        """
        found: list[ZooKeeperServer] = []

        def is_known() -> bool:
            leaders = [
                (status.epoch, server) for server, status in self.statuses() if status.is_leader
            ]
            found[:] = [server for _, server in sorted(leaders, key=lambda one: one[0])]
            return bool(found)

        wait_until(is_known, "a server leads", timeout=timeout)
        return found[-1]

    def statuses(self) -> list[tuple[ZooKeeperServer, ServerStatus]]:
        """Return what each server that answers says of itself."""
        found = []
        for server in self.servers:
            if server.is_reachable:
                try:
                    found.append((server, server.status()))
                except (OSError, NotServingError):
                    continue
        return found

    def change_leader(self) -> ZooKeeperServer:
        """Have another server lead: kill the leader and restart it; return the new one.

        ZooKeeper has no transfer of leadership. Whom it elects is not for us to choose: the voter
        that has seen most, and among equals the one with the highest id.
        """
        old = self.leader()
        old.kill()
        new = self.leader()
        old.restart(wait=False)
        self.wait_until_ready()
        return new

    def wait_until_ready(self, timeout: float = 30.0) -> None:
        """Return when exactly one server leads and all others serve.

        Raises:
            RuntimeError: Not so within ``timeout`` seconds, or a server has ended.
        """
        deadline = time.monotonic() + timeout
        while True:
            for server in self.servers:
                server.wait_until_ready(timeout=max(0.0, deadline - time.monotonic()))
            modes = [status.is_leader for _, status in self.statuses()]
            if len(modes) == self._size and modes.count(True) == 1:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"not so within {timeout:g} s: exactly one server leads")
            time.sleep(0.02)

    def repair(self) -> None:
        """Undo every fault: resume, restart and heal all servers, and wait until they serve."""
        for server in self.servers:
            if server.is_in_trouble:
                server.heal()
            server.resume()
            if not server.is_running:
                server.restart(wait=False)
        self.wait_until_ready()

    def clear(self) -> None:
        """Delete all nodes, whoever owns them, except ZooKeeper's own."""
        serving = [server for server in self.servers if server.serves_clients()]
        with serving[0].client() as client:
            for name in client.get_children("/"):
                if name != "zookeeper":
                    client.delete(f"/{name}", recursive=True)

    def round_trips_given(self) -> tuple[float, float]:
        """Return what the links to clients, and those between servers, added on the average.

        In seconds, of all servers that were never slowed down; 0 if there are none.
        """
        given = [server.delays_given() for server in self.servers if not server.was_slowed_down]
        request = mean_delay(one.client_request for one in given)
        reply = mean_delay(one.client_reply for one in given)
        return request + reply, 2 * mean_delay(one.peer_sent for one in given)

    def _start(self, stack: ExitStack, directory: Path) -> None:
        self.servers.clear()
        chosen = iter(free_ports(5 * self._size))
        ports = [ServerPorts(*(next(chosen) for _ in range(3))) for _ in range(self._size)]
        admin_ports = [next(chosen) if self._has_admin else None for _ in ports]
        if self._has_links:
            for one in ports:
                one.client_link = next(chosen)
            client_rtt, peer_rtt = self._rtts
            self.network = stack.enter_context(
                Network(
                    ports,
                    client_rtt=client_rtt,
                    peer_rtt=peer_rtt,
                    seed=self._seed,
                    cpus=self._cpus,
                )
            )
        stack.callback(self.stop)
        for i in range(self._size):
            self._start_server(i + 1, directory / f"server{i + 1}", ports, admin_ports[i])
        self.wait_until_ready()

    def _start_server(
        self, server_id: int, directory: Path, ports: Sequence[ServerPorts], admin_port: int | None
    ) -> None:
        directory.mkdir()
        (directory / "myid").write_text(f"{server_id}\n")
        config, hosts = directory / "zoo.cfg", None
        if self.network is not None:
            hosts = directory / "hosts"
            self.network.write_hosts(server_id, hosts)
        options = {"dataDir": str(directory), "admin.enableServer": "false"}
        if admin_port is not None:
            options["admin.enableServer"] = "true"
            options["admin.serverAddress"] = HOST
            options["admin.serverPort"] = str(admin_port)
        if server_id > self._voters:
            options["peerType"] = "observer"
        for i, other in enumerate(ports, start=1):
            options[f"server.{i}"] = self._server_line(i, other, is_own=i == server_id)
        write_config(config, options | self._options)
        self.servers.append(
            ZooKeeperServer(
                server_id,
                server_id > self._voters,
                self._leader_serves,
                ports[server_id - 1],
                admin_port,
                java_command(
                    self.installation, config, hosts=hosts, java_options=self._java_options
                ),
                directory,
                self._cpus,
                self.network,
            )
        )

    def _server_line(self, server_id: int, ports: ServerPorts, *, is_own: bool) -> str:
        host = HOST if self.network is None else server_name(server_id)
        role = "observer" if server_id > self._voters else "participant"
        client = ports.client if is_own else ports.client_link or ports.client
        return f"{host}:{ports.quorum}:{ports.election}:{role};{HOST}:{client}"
