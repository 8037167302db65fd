"""What the testbeds of etcd and ZooKeeper share: links with a delay, closed loops, and rounds."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Final, Protocol, TypeVar

from bench.closed_loop import Load, Workload
from bench.contenders import Mode
from bench.scenario import Settings, Steps

MEMBERS: Final = 3
READ_PART: Final = 0.8
CLIENT_RTT: Final = 0.001
PEER_RTT: Final = 0.002
TIMEOUT: Final = 10.0
"""Seconds per call where nothing is to fail."""
WARM_UP: Final = 1.5
"""Seconds of load before each measured slice; connections are opened, the leader is found."""


class Named(Protocol):
    """A contender."""

    @property
    def name(self) -> str:
        """As reported."""


C = TypeVar("C", bound=Named)


class ClosedTestbed:
    """A cluster with a leader, as the command line wants it.

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
        members: int,
        workers: int,
        read_part: float,
    ) -> None:
        self.settings = settings
        self.mode: Mode = settings.mode
        self.members = settings.members or members
        self.workers = settings.workers or workers
        self.read_part = read_part if settings.read_part is None else settings.read_part
        self.rtts = (
            CLIENT_RTT if settings.client_rtt is None else settings.client_rtt,
            PEER_RTT if settings.peer_rtt is None else settings.peer_rtt,
        )
        self.workload = self._mixed(self.read_part)
        self._stack = ExitStack()

    def __exit__(self, *_: object) -> None:
        self._stack.close()

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

    def shuffled(self, contenders: Sequence[C], number: int) -> list[C]:
        """Return the order of a round."""
        order = list(contenders)
        random.Random(f"{self.settings.seed} order {number}").shuffle(order)
        return order

    def rounds_of(
        self, steps: Steps, contenders: Sequence[C], rounds: int
    ) -> Iterator[tuple[int, C]]:
        """Yield every contender in each round, in shuffled order, and show the progress."""
        steps.expect(rounds * len(contenders))
        for number in range(1, rounds + 1):
            for contender in self.shuffled(contenders, number):
                steps.begin(f"round {number} of {rounds}: {contender.name}")
                yield number, contender

    def parameters(self, **more: object) -> dict[str, object]:
        """Return what a reader has to know, with the delays that the links really gave."""
        client, peer = self._round_trips_given()
        return {
            "members": self.members,
            "mix": f"{self.read_part * 100:.0f}/{100 - self.read_part * 100:.0f}",
            "workers": self.workers,
            "client_rtt_ms": self.rtts[0] * 1e3,
            "peer_rtt_ms": self.rtts[1] * 1e3,
            "client_rtt_given_ms": round(client * 1e3, 2),
            "peer_rtt_given_ms": round(peer * 1e3, 2),
            **more,
        }

    def _mixed(self, read_part: float) -> Workload:
        """Return reads and writes with that part of reads."""
        raise NotImplementedError

    def _round_trips_given(self) -> tuple[float, float]:
        """Return the seconds that the links to clients, and between members, really added."""
        raise NotImplementedError
