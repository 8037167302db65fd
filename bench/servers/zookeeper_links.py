"""The links of a ZooKeeper ensemble: one before each server's client port, and one for each pair.

A server dials the leader's quorum port and the election ports of others, and tells them the
address under which it is to be dialled back. All of them go by name, and each server has a hosts
file of its own, in which another's name is the address of the link from the one to the other.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.proxy import Link, ProxyProcess
from bench.servers.links import Delay, Trouble, delay_of

# A leader listens only once it knows that it leads. Who is refused then tries again within the
# same election; who is accepted by a proxy and reset does not, and the next election must first
# wait until that leader has given up.
PATIENCE = 0.5


@dataclass(frozen=True, slots=True)
class DelaysGiven:
    """What the links of a server really added since the start.

    ``peer_sent`` is from it to the other servers, ``peer_received`` from them to it, whoever
    opened the connection.
    """

    client_request: Delay
    client_reply: Delay
    peer_sent: Delay
    peer_received: Delay


@dataclass(slots=True)
class ServerPorts:
    """Where a server listens, the same with links as without; ``client_link`` is 0 without."""

    client: int
    quorum: int
    election: int
    client_link: int = 0


@dataclass(slots=True)
class ServerLinks:
    """The links of one server: to its clients, and those that it dials, by the other's id."""

    client: Link
    dialled: dict[int, list[Link]] = field(default_factory=dict)
    trouble: Trouble = field(default_factory=Trouble)


class Network:
    """All links of an ensemble, in one process; a context manager that always ends it.

    Args:
        servers: The ports of all servers, whose ids count from 1.
        client_rtt: Seconds that a link to clients adds to a round trip, half in each direction.
        peer_rtt: Seconds that links between servers add.
        seed: Decides the jitter.
        cpus: CPUs that the process may use; all when None.
    """

    def __init__(
        self,
        servers: Sequence[ServerPorts],
        *,
        client_rtt: float = 0.0,
        peer_rtt: float = 0.0,
        seed: int = 0,
        cpus: Collection[int] | None = None,
    ) -> None:
        self._rtts = (client_rtt, peer_rtt)
        self._ports = dict(enumerate(servers, start=1))
        self._seed = seed
        self._proxies = ProxyProcess(cpus=cpus)
        try:
            self._links = {i: self._open_client(ports) for i, ports in self._ports.items()}
            for dialler, target in permutations(self._ports, 2):
                self._links[dialler].dialled[target] = self._open_peer(dialler, target)
            self.apply()
        except BaseException:
            self._proxies.close()
            raise

    @property
    def pid(self) -> int:
        """The process id of the proxies."""
        return self._proxies.pid

    def links_of(self, server_id: int) -> ServerLinks:
        """Return a server's links; after a change of their trouble comes ``apply``."""
        return self._links[server_id]

    def write_hosts(self, server_id: int, file: Path) -> None:
        """Write the hosts file of a server."""
        lines = ["127.0.0.1 localhost"]
        for other in self._ports:
            address = own_host(other) if other == server_id else _link_host(server_id, other)
            lines.append(f"{address} {server_name(other)}")
        file.write_text("\n".join(lines) + "\n")

    def apply(self) -> None:
        """Bring every link into the state that the troubles ask for."""
        client_rtt, peer_rtt = self._rtts
        for links in self._links.values():
            trouble = links.trouble
            if trouble.is_client_cut:
                links.client.cut()
            else:
                _delay_by(
                    links.client,
                    client_rtt / 2,
                    reply=(trouble.client_delay, trouble.client_jitter),
                )
        for dialler, target in permutations(self._links, 2):
            sender, receiver = self._links[dialler].trouble, self._links[target].trouble
            for link in self._links[dialler].dialled[target]:
                if sender.is_peer_cut or receiver.is_peer_cut:
                    link.cut()
                else:
                    _delay_by(
                        link,
                        peer_rtt / 2,
                        reply=(receiver.peer_delay, receiver.peer_jitter),
                        request=(sender.peer_delay, sender.peer_jitter),
                    )

    def delays_given(self, server_id: int) -> DelaysGiven:
        """Return how long a server's links really held messages back."""
        client = self._links[server_id].client.stats()
        sent: list[float] = []
        received: list[float] = []
        for other in self._links:
            if other != server_id:
                # The first of the two links is the one to the quorum port: elections are rare.
                dialled = self._links[server_id].dialled[other][0].stats()
                accepted = self._links[other].dialled[server_id][0].stats()
                sent += dialled["request_delays"] + accepted["delays"]
                received += dialled["delays"] + accepted["request_delays"]
        return DelaysGiven(
            client_request=delay_of(client["request_delays"]),
            client_reply=delay_of(client["delays"]),
            peer_sent=delay_of(sent),
            peer_received=delay_of(received),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._proxies.close()

    def _open_client(self, ports: ServerPorts) -> ServerLinks:
        self._seed += 1
        return ServerLinks(
            self._proxies.open(
                "127.0.0.1", ports.client, listen_on=ports.client_link, seed=self._seed
            )
        )

    def _open_peer(self, dialler: int, target: int) -> list[Link]:
        self._seed += 2
        ports = self._ports[target]
        return [
            self._proxies.open(
                own_host(target),
                port,
                listen_on=port,
                listen_host=_link_host(dialler, target),
                seed=self._seed + i,
                patience=PATIENCE,
            )
            for i, port in enumerate((ports.quorum, ports.election))
        ]


def server_name(server_id: int) -> str:
    """Return the name by which servers know a server, if there are links."""
    return f"server{server_id}.zookeeper.test"


def own_host(server_id: int) -> str:
    """Return the address at which a server behind links listens for others."""
    return f"127.0.1.{server_id}"


def _link_host(dialler: int, target: int) -> str:
    return f"127.0.{1 + dialler}.{target}"


def _delay_by(
    link: Link,
    seconds: float,
    *,
    reply: tuple[float, float],
    request: tuple[float, float] = (0.0, 0.0),
) -> None:
    """Delay each direction by ``seconds`` and by more, which is given with its jitter."""
    if seconds > 0 or reply[0] > 0 or request[0] > 0:
        link.delay(
            seconds + reply[0],
            jitter=reply[1],
            request=seconds + request[0],
            request_jitter=request[1],
        )
    else:
        link.undo()
