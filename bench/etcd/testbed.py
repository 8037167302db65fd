"""An etcd cluster whose links have a delay, with its keys, and the drivers of its clients."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from typing import Final, Self

import grpc

from bench.contenders import Mode
from bench.etcd.contenders import Contender, Place, open_client
from bench.etcd.load import EtcdDriver, Load, open_driver
from bench.etcd.workload import Workload, mixed, puts
from bench.scenario import Settings, Steps
from bench.servers.etcd import EtcdMember, EtcdServers
from bench.servers.process import taking_precedence

MEMBERS: Final = 3
READ_PART: Final = 0.8
WORKERS: Final = 32
CLIENT_RTT: Final = 0.001
PEER_RTT: Final = 0.002
TIMEOUT: Final = 10.0
"""Seconds per call where nothing is to fail."""
WARM_UP: Final = 1.5
"""Seconds of load before each measured slice; connections are opened, the leader is found."""


class EtcdTestbed:
    """A running cluster with all keys written. A context manager.

    Args:
        settings: What the command line decided.
        members: Of the cluster, unless told.
        workers: Of the loops, unless told.
        read_part: Part of the operations that are reads, unless told.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        members: int = MEMBERS,
        workers: int = WORKERS,
        read_part: float = READ_PART,
    ) -> None:
        self.settings = settings
        self.mode: Mode = settings.mode
        self.workers = settings.workers or workers
        self.read_part = read_part if settings.read_part is None else settings.read_part
        self.workload: Workload = mixed(self.read_part)
        self.rtts = (
            CLIENT_RTT if settings.client_rtt is None else settings.client_rtt,
            PEER_RTT if settings.peer_rtt is None else settings.peer_rtt,
        )
        self.etcd = EtcdServers(
            members=settings.members or members,
            client_rtt=self.rtts[0],
            peer_rtt=self.rtts[1],
            seed=settings.seed,
        )
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(taking_precedence())
            stack.enter_context(self.etcd)
            self._fill()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def names(self) -> dict[int, str]:
        """The names of the members by their ids."""
        return {member.member_id: member.name for member in self.etcd.members}

    @property
    def roles(self) -> dict[str, str]:
        """The names of the members, and what they are besides."""
        leader = self.etcd.leader()
        return {
            member.name: f"{member.name} (leader)" if member is leader else member.name
            for member in self.etcd.members
        }

    def place(
        self, *, configured: EtcdMember | None = None, left_out: Collection[EtcdMember] = ()
    ) -> Place:
        """Return where clients connect.

        Args:
            configured: The member that ``one_endpoint`` knows; a follower if None.
            left_out: Those that ``limit`` keeps away from.
        """
        leader = self.etcd.leader()
        only = configured or next(m for m in self.etcd.members if m is not leader)
        return Place(
            self.etcd.endpoints,
            leader.endpoint,
            only.endpoint,
            frozenset(member.endpoint for member in left_out),
        )

    @contextlib.contextmanager
    def driving(self, contender: Contender, place: Place | None = None) -> Iterator[EtcdDriver]:
        """Open a fresh client, and close it at the end."""
        driver = open_driver(contender, place or self.place(), self.mode, self.names)
        try:
            yield driver
        finally:
            driver.close()

    def load(
        self,
        seconds: float,
        name: str,
        *,
        workload: Workload | None = None,
        workers: int | None = None,
        timeout: float = TIMEOUT,
    ) -> Load:
        """Return the load called ``name``: the same for every contender of a run."""
        return Load(
            workload or self.workload,
            workers or self.workers,
            seconds,
            timeout,
            f"{self.settings.seed} {name}",
        )

    def warm_up(self, number: int, seconds: float) -> Load:
        """Return the load before the slice of ``seconds`` in round ``number``; never longer."""
        return self.load(min(WARM_UP, seconds), f"warm-up {number}")

    def shuffled(self, contenders: Sequence[Contender], number: int) -> list[Contender]:
        """Return the order of a round."""
        order = list(contenders)
        random.Random(f"{self.settings.seed} order {number}").shuffle(order)
        return order

    def parameters(self, **more: object) -> dict[str, object]:
        """Return what a reader has to know, with the delays that the links really gave."""
        client, peer = self.etcd.round_trips_given()
        return {
            "members": len(self.etcd.members),
            "mix": f"{self.read_part * 100:.0f}/{100 - self.read_part * 100:.0f}",
            "workers": self.workers,
            "client_rtt_ms": self.rtts[0] * 1e3,
            "peer_rtt_ms": self.rtts[1] * 1e3,
            "client_rtt_given_ms": round(client * 1e3, 2),
            "peer_rtt_given_ms": round(peer * 1e3, 2),
            **more,
        }

    def _fill(self) -> None:
        leader = self.etcd.leader().endpoint
        client = open_client(Contender("fill", "leader"), Place([leader], leader, leader), "sync")
        try:
            for request in puts():
                self._put(client.put, request.message)
        finally:
            client.close()

    def _put(self, put: Callable[..., object], message: object) -> None:
        try:
            put(message, timeout=TIMEOUT)
        except grpc.RpcError as error:
            raise RuntimeError(f"the cluster takes no writes: {error}") from error


def rounds_of(
    testbed: EtcdTestbed, steps: Steps, contenders: Sequence[Contender], rounds: int, more: int = 0
) -> Iterator[tuple[int, Contender]]:
    """Yield every contender in each round, in shuffled order, and show the progress."""
    steps.expect(rounds * len(contenders) + more)
    for number in range(1, rounds + 1):
        for contender in testbed.shuffled(contenders, number):
            steps.begin(f"round {number} of {rounds}: {contender.name}")
            yield number, contender
