"""What a scenario is given, what it returns, and how it shows its progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from os import cpu_count
from platform import machine, python_implementation, python_version, system

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.contenders import Mode
from bench.record import Bar, ContenderResult, Plot, TextTable

PACKAGES = ("redis", "hiredis", "uvloop", "lb-strategies", "valkey-glide", "coredis")
ETCD_PACKAGES = ("grpcio", "protobuf", "uvloop", "lb-strategies")
ZOOKEEPER_PACKAGES = ("kazoo", "uvloop", "lb-strategies")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line decides; None leaves it to the scenario.

    Attributes:
        seed: Decides arrivals, jitter and the order of the contenders.
        mode: Kind of the clients.
        modes: Kinds of clients at once, in a scenario that can.
        seconds: Length of one measured slice.
        rounds: Slices of each contender.
        arrivals: Operations per second of an open loop.
        degraded: Number of slow replicas.
        peers: Whether other libraries' clients compete too.
        members: Of a cluster of etcd or ZooKeeper.
        read_part: Part of the operations that are reads, 0 .. 1.
        workers: Workers of a closed loop.
        client_rtt: Seconds that links add to a client's round trip.
        peer_rtt: Seconds that links add to a round trip between members.
    """

    seed: int = 1
    mode: Mode = "sync"
    modes: tuple[Mode, ...] = ("sync", "asyncio")
    seconds: float | None = None
    rounds: int | None = None
    arrivals: float | None = None
    degraded: int = 1
    peers: bool = False
    members: int | None = None
    read_part: float | None = None
    workers: int | None = None
    client_rtt: float | None = None
    peer_rtt: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a scenario found; becomes the JSON."""

    parameters: dict[str, object]
    contenders: list[ContenderResult]
    bars: list[Bar] = field(default_factory=list)
    tables: list[TextTable] = field(default_factory=list)
    redis_server: str = ""
    etcd_server: str = ""
    zookeeper_server: str = ""
    plots: list[Plot] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A question that can be run; the docstring of its module says what is expected.

    Attributes:
        name: On the command line.
        run: Measures; calls the second argument with what it does next.
        question: First line of the module's docstring.
        runs_both: Whether it can have both kinds of clients at once; it does unless told.
        mode: Kind of its clients unless told.
        modes: Kinds of clients that it knows.
    """

    name: str
    run: Callable[[Settings, Steps], Outcome]
    question: str
    runs_both: bool = False
    mode: Mode = "sync"
    modes: tuple[Mode, ...] = ("sync", "asyncio")


class Steps:
    """Progress on the terminal, drawn only between measurements.

    A display that refreshed itself would run in the process, and in the tail, of the client that
    is measured.
    """

    def __init__(self, total: int = 0) -> None:
        self._progress = Progress(
            TextColumn("{task.description:<52}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            auto_refresh=False,
        )
        self._task = self._progress.add_task("starting servers", total=total or None)

    def __enter__(self) -> Steps:
        self._progress.start()
        self._progress.refresh()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def expect(self, total: int) -> None:
        """Say how many calls of ``begin`` will follow."""
        self._progress.update(self._task, total=total, completed=-1)

    def begin(self, what: str) -> None:
        """Show what happens next; what was shown before counts as finished."""
        self._progress.update(self._task, description=what, advance=1)
        self._progress.refresh()

    def finish(self) -> None:
        """Show that all is done."""
        self._progress.update(self._task, description="done", advance=1)
        self._progress.refresh()


def environment(outcome: Outcome) -> dict[str, object]:
    """Return what a reader needs to judge the numbers; nothing that names the machine."""
    version, key, packages = next(
        server
        for server in (
            (outcome.etcd_server, "etcd_server", ETCD_PACKAGES),
            (outcome.zookeeper_server, "zookeeper_server", ZOOKEEPER_PACKAGES),
            (outcome.redis_server or "-", "redis_server", PACKAGES),
        )
        if server[0]
    )
    return {
        "python": f"{python_implementation()} {python_version()}",
        "system": f"{system()} {machine()}",
        "cpus": cpu_count(),
        key: version,
        "versions": dict(_versions(packages)),
    }


def _versions(packages: Iterable[str]) -> Iterable[tuple[str, str]]:
    for package in packages:
        try:
            yield package, version(package)
        except PackageNotFoundError:
            continue
