"""A real etcd cluster on free loopback ports.

::

    with EtcdServers(members=3) as etcd:
        etcd.endpoints                     # ["127.0.0.1:23017", ...], for clients
        etcd.leader().pause()              # or kill, terminate / resume, restart
        etcd.followers[0].put("key", "v")  # through that member; also get, status, call
        etcd.move_leader(etcd.followers[0])
        etcd.repair()                      # every fault is undone

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
from typing import Literal, Self, cast

from bench.servers.binaries import Binary, find_etcd_server
from bench.servers.etcd_gateway import EtcdError, MemberStatus, encoded
from bench.servers.etcd_links import Network
from bench.servers.etcd_member import EtcdMember, Place
from bench.servers.etcd_options import common_options, place_options
from bench.servers.links import mean_delay
from bench.servers.process import free_ports, wait_until
from bench.servers.tls import Certificates, TlsFiles, make_token_keys

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
        auth_token: Kind of the users' tokens: ``"simple"``, or ``"jwt"``, which any change of
            users makes invalid.
        auth_token_ttl: Whole seconds after which a simple token expires where it is not used, and
            a jwt everywhere.
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
        auth_token: Literal["simple", "jwt"] = "simple",
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
        self._has_links = client_rtt is not None or peer_rtt is not None
        self._rtts = (client_rtt or 0.0, peer_rtt or 0.0)
        self._tls = tls
        self._seed = seed
        self._cpus = cpus
        self._options = common_options(
            self.binary,
            heartbeat=heartbeat,
            election=election,
            auth_token_ttl=auth_token_ttl,
        ) | (options or {})
        self._auth_token = auth_token
        self._stack = ExitStack()
        self._directory = Path()
        self.network: Network | None = None
        """The links, if there are any."""
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

    def repair(self) -> None:
        """Undo every fault: resume, restart and heal all members, and wait until they agree."""
        for member in self.members:
            if member.is_in_trouble:
                member.heal()
            member.resume()
            if not member.is_running:
                member.restart(wait=False)
        self.wait_until_ready()

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

        In seconds, of all members that were never slowed down; 0 if there are none.
        """
        given = [member.delays_given() for member in self.members if not member.was_slowed_down]
        request = mean_delay(one.client_request for one in given)
        reply = mean_delay(one.client_reply for one in given)
        return request + reply, 2 * mean_delay(one.peer_reply for one in given)

    def _start(self, stack: ExitStack) -> None:
        self.members.clear()
        self._made = 0
        if self._has_links:
            client_rtt, peer_rtt = self._rtts
            network = Network(
                client_rtt=client_rtt, peer_rtt=peer_rtt, seed=self._seed, cpus=self._cpus
            )
            self.network = stack.enter_context(network)
        if self._auth_token == "jwt":
            public, private = make_token_keys(self._directory)
            ttl = self._options.get("auth-token-ttl", "300")
            self._options["auth-token"] = (
                f"jwt,pub-key={public},priv-key={private},sign-method=RS256,ttl={ttl}s"
            )
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
        if self.network is None:
            return Place(host, client, peer)
        links = self.network.open(host, client=(client, client_link), peer=(peer, peer_link))
        return Place(host, client, peer, links)

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
        if files is not None:
            self.authority = files.authority
        options = {
            "name": name,
            "data-dir": str(self._directory / name),
            "initial-cluster": cluster,
            "initial-cluster-state": state,
            **place_options(place, files),
            **self._options,
        }
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
        if self.network is not None:
            links_of = {one.pid: one.place.links for one in self.members if one.place.links}
            self.network.apply(links_of)
