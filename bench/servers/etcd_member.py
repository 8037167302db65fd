"""One member of an etcd cluster, its links, and the faults that can befall them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from bench.servers.etcd_gateway import EtcdError, Gateway, Json, MemberStatus, decoded, encoded
from bench.servers.etcd_links import DelaysGiven, MemberLinks
from bench.servers.member import Member
from bench.servers.process import Process
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
class EtcdMember(Member):
    """One server of the cluster; ``EtcdServers`` makes it."""

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

    def __post_init__(self) -> None:
        self.gateway = Gateway(
            self.place.host,
            self.place.client_port,
            authority=str(self.tls.authority) if self.tls else None,
        )
        self._launch()

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

    def delays_given(self) -> DelaysGiven:
        """Return how long its links really held messages back.

        Raises:
            RuntimeError: The cluster has no links.
        """
        self._links()
        assert self.place.links is not None
        return self.place.links.delays_given()

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

    def is_ready(self) -> bool:
        """Return whether it knows the leader.

        Raises:
            RuntimeError: It ended.
        """
        if not self.is_running:
            raise RuntimeError(f"etcd of {self.name} at {self.endpoint} ended")
        try:
            status = self.status()
        except (OSError, EtcdError):
            return False
        self.member_id = status.member_id
        return status.leader_id != 0

    def _own_links(self) -> MemberLinks | None:
        return self.place.links

    def _apply_links(self) -> None:
        self.links_changed()

    def _start(self) -> Process:
        log = self.directory / f"{self.name}.log"
        return Process(self.command, log=log, cpus=self.cpus)
