"""An etcd cluster whose links have a delay, with its keys, and the drivers of its clients."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from typing import Final, Self

import grpc

from bench.closed_loop import Driver, Workload
from bench.closed_testbed import MEMBERS, READ_PART, TIMEOUT, ClosedTestbed
from bench.etcd.contenders import Contender, Place, open_client
from bench.etcd.load import open_driver
from bench.etcd.workload import mixed, puts
from bench.scenario import Settings
from bench.servers.etcd import EtcdMember, EtcdServers
from bench.servers.process import running_on, split_cpus, taking_precedence

WORKERS: Final = 32


class EtcdTestbed(ClosedTestbed):
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
        super().__init__(settings, members=members, workers=workers, read_part=read_part)
        self._client_cpus, server_cpus = split_cpus()
        self.etcd = EtcdServers(
            members=self.members,
            client_rtt=self.rtts[0],
            peer_rtt=self.rtts[1],
            seed=settings.seed,
            cpus=server_cpus,
        )

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(taking_precedence())
            stack.enter_context(self.etcd)
            stack.enter_context(running_on(self._client_cpus))
            self._fill()
            self._stack = stack.pop_all()
        return self

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
    def driving(self, contender: Contender, place: Place | None = None) -> Iterator[Driver]:
        """Open a fresh client, and close it at the end."""
        driver = open_driver(contender, place or self.place(), self.mode, self.names)
        try:
            yield driver
        finally:
            driver.close()

    def _mixed(self, read_part: float) -> Workload:
        return mixed(read_part)

    def _round_trips_given(self) -> tuple[float, float]:
        return self.etcd.round_trips_given()

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
