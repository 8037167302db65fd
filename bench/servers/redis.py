"""A real Redis Cluster on free loopback ports.

::

    with RedisClusterServers(primaries=1, replicas=3) as servers:
        client = RedisCluster(host=servers.host, port=servers.port)
        servers.replicas[0].pause()
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self, cast

from bench.servers.binaries import Binary, find_redis_server
from bench.servers.process import free_ports, is_free, wait_until
from bench.servers.redis_node import HOST, RedisNode, Role
from bench.servers.tls import TlsFiles

__all__ = ["RedisClusterServers", "RedisNode", "TlsFiles", "ports_in_slots", "tls_options"]

SLOTS = 16384
START_ATTEMPTS = 3
# Seconds. News spreads by pings to every server twice per node timeout: with the long one of the
# finished cluster, forming it takes 13 s instead of 3 s.
FORMING_NODE_TIMEOUT = 1.0
MEETINGS = 3
MEETING_TIME = 5.0  # all know all after 3, if nothing comes between


class RedisClusterServers:
    """Starts ``primaries`` x (1 + ``replicas``) servers as one cluster and always stops them.

    Entering returns when every server sees the whole cluster, every replica has its data, and
    CLUSTER SLOTS of every server lists every replica.

    Args:
        primaries: Number of shards.
        replicas: Replicas of each primary; may be 0.
        node_timeout: Seconds until the cluster declares a silent server failed. Long by default:
            a frozen server must not leave CLUSTER SLOTS in the middle of a measurement.
        binary: The server; found by ``find_redis_server`` when None.
        cpus: CPUs that the servers may use; all when None.
        config: More lines of redis.conf, by option name.
        tls: Listen on a second port with TLS too (``tls_port`` of each node), and use it among
            themselves. Client certificates are checked if there are any.
        ports: Where the servers listen, primaries first; free ports when None.
    """

    def __init__(
        self,
        *,
        primaries: int = 1,
        replicas: int = 3,
        node_timeout: float = 60.0,
        binary: Binary | None = None,
        cpus: Collection[int] | None = None,
        config: dict[str, str] | None = None,
        tls: TlsFiles | None = None,
        ports: Sequence[int] | None = None,
    ) -> None:
        if primaries < 1 or replicas < 0:
            raise ValueError(f"primaries={primaries} must be >= 1, replicas={replicas} >= 0")
        if ports is not None and len(ports) != primaries * (1 + replicas):
            raise ValueError(f"{primaries * (1 + replicas)} servers need as many ports: {ports}")
        self.binary = binary or find_redis_server()
        self.nodes: list[RedisNode] = []
        self._primaries = primaries
        self._replicas = replicas
        self._node_timeout = node_timeout
        self._cpus = cpus
        self._config = config or {}
        self._tls = tls
        self._ports = ports
        self._stack = ExitStack()
        self._directory = Path()

    @property
    def primaries(self) -> list[RedisNode]:
        """The servers that started as primaries."""
        return [node for node in self.nodes if node.role == "primary"]

    @property
    def replicas(self) -> list[RedisNode]:
        """The servers that started as replicas, those of the first primary first."""
        return [node for node in self.nodes if node.role == "replica"]

    @property
    def host(self) -> str:
        """Where a client starts."""
        return HOST

    @property
    def port(self) -> int:
        """Where a client starts: the port of the first primary."""
        return self.nodes[0].port

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="lb-redis-"))
            self._directory = Path(directory)
            stack.callback(self.stop)
            for _ in range(self._primaries):
                self._start_node("primary")
            for _ in range(self._primaries * self._replicas):
                self._start_node("replica")
            self._form_cluster()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def stop(self) -> None:
        """End every server, also paused ones."""
        for node in self.nodes:
            node.kill()

    def add_replica(self, primary: RedisNode) -> RedisNode:
        """Start one more replica of ``primary``; return it when every server lists it."""
        replica = self._start_node("replica")
        self._introduce([(replica, other) for other in self.nodes if other is not replica])
        replica.ask("CLUSTER", "REPLICATE", primary.ask("CLUSTER", "MYID"))
        self.wait_until_ready()
        self._set_node_timeout(replica)
        return replica

    def remove_replica(self, replica: RedisNode) -> None:
        """End a replica for good; return when no server lists it."""
        name = replica.ask("CLUSTER", "MYID")
        self.nodes.remove(replica)
        replica.kill()
        for node in self.nodes:
            node.ask("CLUSTER", "FORGET", name)
        wait_until(self._is_ready, "no server lists the one that has gone")

    def _start_node(self, role: Role) -> RedisNode:
        # A port can be taken between looking and binding; the server then ends at once.
        for attempt in range(START_ATTEMPTS):
            port, bus, tls = free_ports(3)
            if self._ports is not None:
                port = self._ports[len(self.nodes)]
                if not is_free(port):
                    raise RuntimeError(f"port {port} on {HOST} is in use")
            config = self._directory / f"{port}.conf"
            config.write_text(self._redis_conf(port, bus, tls))
            node = RedisNode(self.binary, config, port=port, role=role, cpus=self._cpus)
            if self._tls is not None:
                node.tls_port = tls
            try:
                node.wait_until_answering()
            except RuntimeError:
                node.kill()
                if attempt + 1 == START_ATTEMPTS:
                    raise
            except BaseException:
                node.kill()
                raise
            else:
                self.nodes.append(node)
                return node
        raise AssertionError("the last attempt returns or raises")

    def _redis_conf(self, port: int, bus: int, tls: int) -> str:
        options = {
            "bind": HOST,
            "port": str(port),
            "cluster-port": str(bus),
            "cluster-enabled": "yes",
            "cluster-config-file": f"nodes-{port}.conf",
            "cluster-node-timeout": str(round(FORMING_NODE_TIMEOUT * 1000)),
            "dir": str(self._directory),
            "dbfilename": f"{port}.rdb",
            "save": '""',
            "appendonly": "no",
            "protected-mode": "no",
            "enable-debug-command": "yes",
            # The first synchronisation waits this long for more replicas (5 s by default).
            "repl-diskless-sync-delay": "0",
            # CLUSTER SLOTS hides a replica until it has replicated something: this ping (10 s).
            "repl-ping-replica-period": "1",
            **self._config,
        }
        if self._tls is not None:
            options |= {"tls-port": str(tls), "tls-cluster": "yes", "tls-replication": "yes"}
            options |= {"tls-auth-clients": "optional", **tls_options(self._tls)}
        return "".join(f"{name} {value}\n" for name, value in options.items())

    def _form_cluster(self) -> None:
        bounds = [SLOTS * i // self._primaries for i in range(self._primaries + 1)]
        for epoch, (node, first, after) in enumerate(
            zip(self.primaries, bounds, bounds[1:], strict=False), start=1
        ):
            node.ask("CLUSTER", "ADDSLOTSRANGE", first, after - 1)
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", epoch)
        # Everyone meets everyone: waiting for gossip to spread takes seconds.
        self._introduce(itertools.combinations(self.nodes, 2))
        for i, replica in enumerate(self.replicas):
            primary = self.primaries[i // self._replicas]
            replica.ask("CLUSTER", "REPLICATE", primary.ask("CLUSTER", "MYID"))
        self.wait_until_ready()
        for node in self.nodes:
            self._set_node_timeout(node)

    def _introduce(self, strangers: Iterable[tuple[RedisNode, RedisNode]]) -> None:
        """Have each two servers meet; return when all know all.

        A server gives a handshake up when its node timeout is over, and on a busy machine all of
        a new one's can end so. Nobody tells it of the others then, so they have to meet again.
        """
        pairs = list(strangers)
        for attempt in range(1, MEETINGS + 1):
            for node, other in pairs:
                bus = self._bus_port(other)
                node.ask("CLUSTER", "MEET", other.host, other.tls_port or other.port, bus)
            try:
                wait_until(
                    self._all_know_all, "every server knows every other", timeout=MEETING_TIME
                )
            except RuntimeError:
                if attempt == MEETINGS:
                    raise
            else:
                return

    def _set_node_timeout(self, node: RedisNode) -> None:
        node.ask("CONFIG", "SET", "cluster-node-timeout", round(self._node_timeout * 1000))

    def wait_until_ready(self, timeout: float = 30.0) -> None:
        """Return when every server agrees on the whole cluster and every replica has its data.

        Raises:
            RuntimeError: Not so after ``timeout`` seconds.
        """
        wait_until(self._is_ready, "the cluster is ready", timeout=timeout)

    def _bus_port(self, node: RedisNode) -> int:
        with node.client() as client:
            return int(client.config_get("cluster-port")["cluster-port"])

    def _all_know_all(self) -> bool:
        return all(
            _cluster_info(node)["cluster_known_nodes"] == str(len(self.nodes))
            and "handshake" not in str(node.ask("CLUSTER", "NODES"))
            for node in self.nodes
        )

    def _is_ready(self) -> bool:
        return (
            all(_cluster_info(node)["cluster_state"] == "ok" for node in self.nodes)
            and all(_is_synchronised(replica) for replica in self.replicas)
            and all(len(ports_in_slots(node)) == len(self.nodes) for node in self.nodes)
        )


def tls_options(files: TlsFiles) -> dict[str, str]:
    """Return these files as lines of redis.conf."""
    return {
        "tls-ca-cert-file": str(files.authority),
        "tls-cert-file": str(files.certificate),
        "tls-key-file": str(files.key),
    }


def _cluster_info(node: RedisNode) -> dict[str, str]:
    lines = str(node.ask("CLUSTER", "INFO")).splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _is_synchronised(replica: RedisNode) -> bool:
    with replica.client() as client:
        info = cast("dict[str, object]", client.info("replication"))
    return info.get("master_link_status") == "up"


def ports_in_slots(node: RedisNode) -> set[int]:
    """Return the ports that CLUSTER SLOTS of this server names, primaries and replicas."""
    slots = cast("list[list[list[object]]]", node.ask("CLUSTER", "SLOTS"))
    return {cast("int", server[1]) for span in slots for server in span[2:]}
