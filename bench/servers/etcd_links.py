"""The links of an etcd cluster: a proxy before each member's URL for clients, and for peers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from bench.proxy import Link, ProxyProcess
from bench.servers.links import Delay, Trouble, delay_of


@dataclass(frozen=True, slots=True)
class DelaysGiven:
    """What the two links of a member really added since they were made.

    Raft's messages travel as replies: each member dials every other and is sent that one's
    messages as the endless body of a response. One to another member and back thus passes the
    ``peer_reply`` of both.
    """

    client_request: Delay
    client_reply: Delay
    peer_request: Delay
    peer_reply: Delay


@dataclass(slots=True)
class MemberLinks:
    """The two links of a member."""

    client: Link
    peer: Link
    trouble: Trouble = field(default_factory=Trouble)

    def delays_given(self) -> DelaysGiven:
        """Return how long they really held messages back."""
        of_clients, of_peers = self.client.stats(), self.peer.stats()
        return DelaysGiven(
            client_request=delay_of(of_clients["request_delays"]),
            client_reply=delay_of(of_clients["delays"]),
            peer_request=delay_of(of_peers["request_delays"]),
            peer_reply=delay_of(of_peers["delays"]),
        )


class Network:
    """All links of a cluster, in one process; a context manager that always ends it.

    Args:
        client_rtt: Seconds that a link to clients adds to a round trip, half in each direction.
        peer_rtt: Seconds that links between members add.
        seed: Decides the jitter.
        cpus: CPUs that the process may use; all when None.
    """

    def __init__(
        self,
        *,
        client_rtt: float = 0.0,
        peer_rtt: float = 0.0,
        seed: int = 0,
        cpus: Collection[int] | None = None,
    ) -> None:
        self._rtts = (client_rtt, peer_rtt)
        self._seed = seed
        self._proxies = ProxyProcess(cpus=cpus)

    @property
    def pid(self) -> int:
        """The process id of the proxies."""
        return self._proxies.pid

    def open(self, host: str, *, client: tuple[int, int], peer: tuple[int, int]) -> MemberLinks:
        """Return the links of a new member.

        Args:
            host: Where the member and its links listen.
            client: The member's port for clients, and that of the link.
            peer: The same for other members.
        """
        self._seed += 2
        return MemberLinks(
            self._proxies.open(host, client[0], listen_on=client[1], seed=self._seed),
            self._proxies.open(host, peer[0], listen_on=peer[1], seed=self._seed + 1),
        )

    def apply(self, links_of: Mapping[int, MemberLinks]) -> None:
        """Bring every link into the state that the troubles ask for; by the members' pids."""
        cut_off = [pid for pid, links in links_of.items() if links.trouble.is_peer_cut]
        client_rtt, peer_rtt = self._rtts
        for pid, links in links_of.items():
            trouble = links.trouble
            if trouble.is_client_cut:
                links.client.cut()
            else:
                _delay_by(links.client, client_rtt, trouble.client_delay, trouble.client_jitter)
            if trouble.is_peer_cut:
                links.peer.cut()
            else:
                _delay_by(links.peer, peer_rtt, trouble.peer_delay, trouble.peer_jitter)
            # What a member that is cut off dials itself arrives at the others' links.
            links.peer.refuse([other for other in cut_off if other != pid])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._proxies.close()


def _delay_by(link: Link, rtt: float, more: float, jitter: float) -> None:
    """Delay by a round trip, and ``more`` on the side of the member, which is that of replies."""
    if rtt > 0 or more > 0:
        link.delay(rtt / 2 + more, jitter=jitter, request=rtt / 2)
    else:
        link.undo()
