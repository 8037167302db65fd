"""One member of an etcd cluster, its links, and the faults that can befall them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from bench.servers.etcd_gateway import EtcdError, Gateway, Json, MemberStatus, decoded, encoded
from bench.servers.etcd_links import DelaysGiven, MemberLinks, Trouble
from bench.servers.process import Process, wait_until
from bench.servers.tls import TlsFiles


@dataclass(frozen=True, slots=True)
class Place:
    """Where a member listens: really, and behind its links if it has any."""

    host: str
    client_port: int
    peer_port: int
    links: MemberLinks | None = None

    def address(self, port: int) -> str:
        """Return ``"host:port"``, with brackets for IPv6."""
        return f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"

    @property
    def endpoint(self) -> str:
        """Where clients connect."""
        return self.address(self.links.client.port if self.links else self.client_port)

    @property
    def peer_endpoint(self) -> str:
        """Where the other members connect."""
        return self.address(self.links.peer.port if self.links else self.peer_port)


@dataclass
class EtcdMember:
    """One server of the cluster; ``EtcdServers`` makes it.

    Faults: ``pause`` / ``resume``, ``kill`` or ``terminate`` / ``restart`` and, on links,
    ``slow_down`` and ``cut`` / ``heal``.
    """

    name: str
    place: Place
    command: Sequence[str | Path]
    directory: Path
    cpus: Collection[int] | None
    tls: TlsFiles | None
    login: tuple[str, str] | None
    links_changed: Callable[[], None]
    is_learner: bool = False
    member_id: int = 0
    """As in ``header.member_id`` of its replies; 0 until it has answered."""
    is_paused: bool = False

    def __post_init__(self) -> None:
        self.gateway = Gateway(
            self.place.host,
            self.place.client_port,
            authority=str(self.tls.authority) if self.tls else None,
        )
        self._process = self._start()

    @property
    def endpoint(self) -> str:
        """``"host:port"`` for clients: of its link, if it has one."""
        return self.place.endpoint

    @property
    def client_url(self) -> str:
        """The endpoint with ``http://`` or ``https://``; what the cluster advertises."""
        return f"http{'s' if self.tls else ''}://{self.endpoint}"

    @property
    def peer_url(self) -> str:
        """Where the other members find it."""
        return f"http://{self.place.peer_endpoint}"

    @property
    def tls_name(self) -> str:
        """A name that only this member's certificate has, beside its address."""
        return f"{self.name}.etcd.test"

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
        return self.place.links is not None and self.place.links.trouble != Trouble()

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
        """End the server in order (SIGTERM): a leader hands over first. Idempotent."""
        self.resume()
        self._process.terminate()

    def restart(self, *, wait: bool = True) -> None:
        """Start an ended server again, with its data and ports.

        Args:
            wait: Return when it knows the leader, which without a quorum it never does.
        """
        self.kill()
        self._process = self._start()
        self.links_changed()
        if wait:
            self.wait_until_ready()

    def slow_down(
        self, seconds: float, *, jitter: float = 0.0, client: bool = True, peer: bool = True
    ) -> None:
        """Add ``seconds`` +- ``jitter`` (uniform) to all that the member sends.

        Args:
            seconds: Added to each round trip with it; replaces what was added before.
            jitter: At most ``seconds``.
            client: To clients.
            peer: To other members.
        """
        trouble = self._links().trouble
        trouble.client_delay, trouble.client_jitter = (seconds * client, jitter * client)
        trouble.peer_delay, trouble.peer_jitter = (seconds * peer, jitter * peer)
        self.links_changed()

    def cut(self, *, client: bool = True, peer: bool = True) -> None:
        """Reset its connections, in both directions, and refuse new ones."""
        trouble = self._links().trouble
        trouble.is_client_cut, trouble.is_peer_cut = client, peer
        self.links_changed()

    def heal(self) -> None:
        """Undo ``slow_down`` and ``cut``."""
        self._links().trouble = Trouble()
        self.links_changed()

    def delays_given(self) -> DelaysGiven:
        """Return how long its links really held messages back.

        Raises:
            RuntimeError: The cluster has no links.
        """
        return self._links().delays_given()

    def status(self) -> MemberStatus:
        """Return what the member says of itself, without asking any other."""
        return self.gateway.status()

    def call(self, path: str, body: Mapping[str, object]) -> Json:
        """Call the member's gateway, as root where the cluster has users."""
        token = self.gateway.login(*self.login) if self.login else None
        return self.gateway.call(path, body, token=token)

    def put(self, key: str, value: str) -> int:
        """Write through this member; return the revision."""
        answer = self.call("kv/put", {"key": encoded(key), "value": encoded(value)})
        return int(cast("dict[str, str]", answer["header"])["revision"])

    def get(self, key: str, *, serializable: bool = False) -> str | None:
        """Read from this member; ``serializable`` from its own state, perhaps stale."""
        answer = self.call("kv/range", {"key": encoded(key), "serializable": serializable})
        found = cast("list[dict[str, str]]", answer.get("kvs", []))
        return decoded(found[0].get("value", "")) if found else None

    def wait_until_ready(self, timeout: float = 30.0) -> None:
        """Return when the member knows the leader.

        Raises:
            RuntimeError: It ended, or did not within ``timeout`` seconds; the message holds the
                end of its log.
        """
        try:
            wait_until(self._knows_leader, f"{self.name} knows the leader", timeout=timeout)
        except RuntimeError as error:
            raise RuntimeError(f"{error}; end of its log:\n{self._process.log_tail()}") from error

    def _links(self) -> MemberLinks:
        if self.place.links is None:
            raise RuntimeError("links need client_rtt or peer_rtt, which may be 0")
        return self.place.links

    def _knows_leader(self) -> bool:
        if not self.is_running:
            raise RuntimeError(f"etcd of {self.name} at {self.endpoint} ended")
        try:
            status = self.status()
        except (OSError, EtcdError):
            return False
        self.member_id = status.member_id
        return status.leader_id != 0

    def _start(self) -> Process:
        log = self.directory / f"{self.name}.log"
        return Process(self.command, log=log, cpus=self.cpus)
