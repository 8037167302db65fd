"""A real etcd cluster on free loopback ports.

::

    with EtcdServers(members=3) as etcd:
        etcd.endpoints                     # ["127.0.0.1:23017", ...], for clients
        etcd.leader().pause()              # or kill, terminate / resume, restart
        etcd.followers[0].put("key", "v")  # through that member; also get, status, call
        etcd.move_leader(etcd.followers[0])

    with EtcdServers(members=5, client_rtt=0.001, peer_rtt=0.002) as etcd:
        etcd.followers[0].slow_down(0.008, jitter=0.002)  # or cut(); undone by heal()
        etcd.round_trips_given()           # what the links really added, in seconds

With ``client_rtt`` or ``peer_rtt`` every client link and every peer link passes a proxy, all in one
process: clients and members know the proxies' addresses only. Half of a round trip is given to
each direction. Administration goes past the links.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self, cast

from bench.proxy import Link, ProxyProcess
from bench.servers.binaries import Binary, find_etcd_server
from bench.servers.etcd_gateway import EtcdError, MemberStatus, encoded
from bench.servers.etcd_member import EtcdMember, Place, mean_delay
from bench.servers.process import free_ports, wait_until
from bench.servers.tls import Certificates, TlsFiles

__all__ = ["EtcdError", "EtcdMember", "EtcdServers", "MemberStatus"]

START_ATTEMPTS = 3
ROOT = "root"


class EtcdServers:
    """Starts an etcd cluster and always stops it.

    Entering returns when every member knows the same leader.

    Args:
        members: Number of voting members.
        binary: The server; the newest that ``find_etcd_server`` finds when None.
        host: Where to listen: ``"127.0.0.1"``, or ``"::1"`` for IPv6.
        heartbeat: Seconds between the leader's heartbeats.
        election: Seconds of silence after which a follower stands for election; once to twice as
            long in fact.
        client_rtt: Seconds that the links to clients add to a round trip; see the module.
        peer_rtt: Seconds that the links between members add.
        password: Of the user root, who is made and needed if not None.
        auth_token: ``"simple"``, or etcd's own ``"jwt,..."``.
        auth_token_ttl: Seconds after which an unused simple token expires.
        tls: Serve clients with TLS. Member ``i`` listens on 127.0.0.(1 + i) with a certificate for
            this address and for its ``tls_name`` alone; ``authority`` is whom to trust.
        options: More of etcd's options, by name without dashes.
        seed: Decides the jitter of the links.
        cpus: CPUs that the servers and the proxies may use; all when None.
    """

    def __init__(
        self,
        *,
        members: int = 3,
        binary: Binary | None = None,
        host: str = "127.0.0.1",
        heartbeat: float = 0.1,
        election: float = 1.0,
        client_rtt: float | None = None,
        peer_rtt: float | None = None,
        password: str | None = None,
        auth_token: str = "simple",
        auth_token_ttl: int | None = None,
        tls: bool = False,
        options: dict[str, str] | None = None,
        seed: int = 0,
        cpus: Collection[int] | None = None,
    ) -> None:
        if members < 1:
            raise ValueError(f"members={members} must be >= 1")
        if tls and host != "127.0.0.1":
            raise ValueError(f"with tls, members choose their own addresses, not {host}")
        self.binary = binary or find_etcd_server()
        self.members: list[EtcdMember] = []
        """Those of the cluster now, learners too, in the order in which they were added."""
        self.login = (ROOT, password) if password is not None else None
        """User and password that clients need; None if there are no users."""
        self.authority: Path | None = None
        """With ``tls``, the certificate for clients to trust."""
        self._size = members
        self._host = host
        self._rtts = (client_rtt or 0.0, peer_rtt or 0.0)
        self._has_links = client_rtt is not None or peer_rtt is not None
        self._tls = tls
        self._seed = seed
        self._cpus = cpus
        self._options = {
            "heartbeat-interval": f"{heartbeat * 1000:.0f}",
            "election-timeout": f"{election * 1000:.0f}",
            "logger": "zap",
            "log-level": "error",
            "auth-token": auth_token,
            # The cheapest: by default each log-in takes a tenth of a second of computing.
            "bcrypt-cost": "4",
            # Else members can be added only to a cluster that is five seconds old.
            "strict-reconfig-check": "false",
        }
        if auth_token_ttl is not None:
            self._options["auth-token-ttl"] = str(auth_token_ttl)
        if not self.binary.version.startswith("3.4."):
            self._options["unsafe-no-fsync"] = "true"
        self._options |= options or {}
        self._stack = ExitStack()
        self._directory = Path()
        self._proxies: ProxyProcess | None = None
        self._certificates: Certificates | None = None
        self._made = 0

    @property
    def endpoints(self) -> list[str]:
        """``"host:port"`` of every member, learners too, for clients."""
        return [member.endpoint for member in self.members]

    @property
    def voters(self) -> list[EtcdMember]:
        """The members that are no learners."""
        return [member for member in self.members if not member.is_learner]

    @property
    def followers(self) -> list[EtcdMember]:
        """The voting members except the leader."""
        leader = self.leader()
        return [member for member in self.voters if member is not leader]

    @property
    def pids(self) -> list[int]:
        """The process ids of the servers."""
        return [member.pid for member in self.members]

    def member(self, member_id: int) -> EtcdMember:
        """Return the member with this id; ``KeyError`` if there is none."""
        for member in self.members:
            if member.member_id == member_id:
                return member
        raise KeyError(f"no member {member_id:x}")

    def __enter__(self) -> Self:
        for attempt in range(START_ATTEMPTS):
            with ExitStack() as stack:
                directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="lb-etcd-"))
                self._directory = Path(directory)
                try:
                    self._start(stack)
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
        for member in self.members:
            member.kill()

    def leader(self, timeout: float = 15.0) -> EtcdMember:
        """Return the member that calls itself the leader, at the highest term; wait for one.

        Raises:
            RuntimeError: There is none within ``timeout`` seconds.
        """
        found: list[EtcdMember] = []

        def is_known() -> bool:
            leaders = [
                (status.term, member)
                for member, status in self.statuses()
                if status.leader_id == status.member_id
            ]
            found[:] = [member for _, member in sorted(leaders, key=lambda one: one[0])]
            return bool(found)

        wait_until(is_known, "a member is the leader", timeout=timeout)
        return found[-1]

    def statuses(self) -> list[tuple[EtcdMember, MemberStatus]]:
        """Return what each member that answers says of itself."""
        found = []
        for member in self.members:
            if member.is_reachable:
                try:
                    found.append((member, member.status()))
                except (OSError, EtcdError):
                    continue
        return found

    def move_leader(self, to: EtcdMember) -> None:
        """Hand leadership over; return when ``to`` and all others know it."""
        leader = self.leader()
        if leader is not to:
            target = {"targetID": str(to.member_id)}
            leader.call("maintenance/transfer-leadership", target)
        wait_until(
            lambda: all(status.leader_id == to.member_id for _, status in self.statuses()),
            f"{to.name} is the leader",
        )

    def wait_until_ready(self, timeout: float = 30.0) -> None:
        """Return when all members answer and know the same leader, who is one of them.

        Raises:
            RuntimeError: Not so within ``timeout`` seconds, or a member has ended.
        """
        deadline = time.monotonic() + timeout
        for member in self.members:
            member.wait_until_ready(timeout=max(0.0, deadline - time.monotonic()))
        wait_until(
            self._agrees,
            "all members know the same leader",
            timeout=max(0.0, deadline - time.monotonic()),
        )

    def clear(self) -> None:
        """Delete all keys."""
        everything = {"key": encoded(b"\0"), "range_end": encoded(b"\0")}
        self.leader().call("kv/deleterange", everything)

    def add_learner(self) -> EtcdMember:
        """Start one more member, which does not vote; return when it knows the leader."""
        place = self._new_place()
        url = f"http://{place.peer_endpoint}"
        answer = self.leader().call("cluster/member/add", {"peerURLs": [url], "isLearner": True})
        learner = self._start_member(place, self._initial_cluster([place]), state="existing")
        learner.is_learner = True
        learner.member_id = int(cast("dict[str, str]", answer["member"])["ID"])
        self._set_links()
        learner.wait_until_ready()
        return learner

    def promote(self, learner: EtcdMember) -> None:
        """Let a learner vote, as soon as it has the leader's data."""

        def is_promoted() -> bool:
            try:
                self.leader().call("cluster/member/promote", {"ID": str(learner.member_id)})
            except EtcdError as error:
                if "in sync with leader" not in error.details:
                    raise
                return False
            return True

        wait_until(is_promoted, f"{learner.name} may vote")
        learner.is_learner = False

    def remove(self, member: EtcdMember) -> None:
        """Take a member out of the cluster for good, and end it."""
        others = [other for other in self.voters if other is not member and other.is_reachable]
        others[0].call("cluster/member/remove", {"ID": str(member.member_id)})
        self.members.remove(member)
        member.kill()
        self._set_links()

    def round_trips_given(self) -> tuple[float, float]:
        """Return what the links to clients, and those between members, added on the average.

        In seconds, of all members whose links have no trouble of their own now.
        """
        given = [member.delays_given() for member in self.members if not member.is_in_trouble]
        request = mean_delay(one.client_request for one in given)
        reply = mean_delay(one.client_reply for one in given)
        return request + reply, 2 * mean_delay(one.peer_reply for one in given)

    def _start(self, stack: ExitStack) -> None:
        self.members.clear()
        self._made = 0
        if self._has_links:
            self._proxies = stack.enter_context(ProxyProcess(cpus=self._cpus))
        if self._tls:
            self._certificates = Certificates(self._directory)
        stack.callback(self.stop)
        places = [self._new_place(i) for i in range(self._size)]
        cluster = self._initial_cluster(places)
        for place in places:
            self._start_member(place, cluster, state="new")
        self._set_links()
        self.wait_until_ready()
        if self.login is not None:
            self._require_login(*self.login)

    def _new_place(self, number: int | None = None) -> Place:
        host = self._host
        if self._tls:
            host = f"127.0.0.{1 + (self._made if number is None else number)}"
        client, peer, client_link, peer_link = free_ports(4)
        if self._proxies is None:
            return Place(host, client, peer)
        return Place(
            host,
            client,
            peer,
            self._proxies.open(host, client, listen_on=client_link, seed=self._seed + client),
            self._proxies.open(host, peer, listen_on=peer_link, seed=self._seed + peer),
        )

    def _initial_cluster(self, new: Collection[Place]) -> str:
        """Return all members, ``new`` ones with the names they will get."""
        urls = {member.name: member.peer_url for member in self.members}
        for number, place in enumerate(new, start=self._made):
            urls[f"m{number}"] = f"http://{place.peer_endpoint}"
        return ",".join(f"{name}={url}" for name, url in urls.items())

    def _start_member(self, place: Place, cluster: str, *, state: str) -> EtcdMember:
        name = f"m{self._made}"
        self._made += 1
        files = self._issue(place.host, f"{name}.etcd.test")
        scheme = "https" if files else "http"
        options = {
            "name": name,
            "data-dir": str(self._directory / name),
            "listen-client-urls": f"{scheme}://{place.address(place.client_port)}",
            "advertise-client-urls": f"{scheme}://{place.endpoint}",
            "listen-peer-urls": f"http://{place.address(place.peer_port)}",
            "initial-advertise-peer-urls": f"http://{place.peer_endpoint}",
            "initial-cluster": cluster,
            "initial-cluster-state": state,
            **self._options,
        }
        if files is not None:
            self.authority = files.authority
            options |= {"cert-file": str(files.certificate), "key-file": str(files.key)}
        member = EtcdMember(
            name,
            place,
            [self.binary.path, *(f"--{option}={value}" for option, value in options.items())],
            self._directory,
            self._cpus,
            files,
            None,
            self._set_links,
        )
        self.members.append(member)
        return member

    def _issue(self, host: str, name: str) -> TlsFiles | None:
        return self._certificates.issue(host, name) if self._certificates else None

    def _require_login(self, user: str, password: str) -> None:
        leader = self.leader()
        leader.call("auth/user/add", {"name": user, "password": password})
        leader.call("auth/role/add", {"name": ROOT})
        leader.call("auth/user/grant", {"user": user, "role": ROOT})
        leader.call("auth/enable", {})
        for member in self.members:
            member.login = self.login

    def _agrees(self) -> bool:
        found = self.statuses()
        leaders = {status.leader_id for _, status in found}
        ids = {member.member_id for member in self.members}
        return len(found) == len(self.members) and len(leaders) == 1 and leaders <= ids

    def _set_links(self) -> None:
        """Bring every link into the state that the members' troubles ask for."""
        cut_off = {member.pid: member for member in self.members if member.trouble.is_peer_cut}
        for member in self.members:
            trouble, place = member.trouble, member.place
            if place.client_link is None or place.peer_link is None:
                if member.is_in_trouble:
                    raise RuntimeError("links need client_rtt or peer_rtt, which may be 0")
                continue
            client_rtt, peer_rtt = self._rtts
            _set_link(
                place.client_link,
                trouble.is_client_cut,
                client_rtt,
                trouble.client_delay,
                trouble.client_jitter,
            )
            _set_link(
                place.peer_link,
                trouble.is_peer_cut,
                peer_rtt,
                trouble.peer_delay,
                trouble.peer_jitter,
            )
            # What a member that is cut off dials itself arrives at the others' links.
            place.peer_link.refuse([pid for pid, cut in cut_off.items() if cut is not member])


def _set_link(link: Link, is_cut: bool, rtt: float, delay: float, jitter: float) -> None:
    if is_cut:
        link.cut()
    elif rtt > 0 or delay > 0:
        link.delay(rtt / 2 + delay, jitter=jitter, request=rtt / 2)
    else:
        link.undo()
