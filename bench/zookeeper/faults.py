"""A server fails under an open loop of few operations; what a client noticed of it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from kazoo.client import KazooClient

from bench.closed_loop import Measured
from bench.load import Sample, SyncDriver
from bench.record import TextTable
from bench.servers.zookeeper import ZooKeeperServer, ZooKeeperServers
from bench.workload import Arrival, Kind, Operation
from bench.zookeeper.contenders import Client
from bench.zookeeper.workload import NODES, path

THREADS: Final = 256
"""Each waits for one operation; those of kazoo's own client may wait until the server is well."""
EPHEMERAL: Final = "/bench-ephemeral-"
KINDS: Final[tuple[Kind, ...]] = ("read", "write")


@dataclass(frozen=True, slots=True)
class Noticed:
    """What a client noticed of one fault; in seconds from it.

    Attributes:
        failed: Operations that failed from then on.
        serving: Until a read and a write that were asked after it had been answered; inf if one
            of both never was.
        last_failure: To the start of the last operation that failed; 0 if there was none.
        longest: That an operation took, in seconds.
        keeps_session: Whether the session was the same at the end.
        keeps_ephemeral: Whether a node that lives as long as it does was there at the end.
    """

    failed: int
    serving: float
    last_failure: float
    longest: float
    keeps_session: bool
    keeps_ephemeral: bool


class Incident:
    """A fault of `victim` under load, looked at and undone from a thread of its own.

    Args:
        zookeeper: The ensemble.
        victim: The server that fails.
        fault: What happens to it.
        after: Seconds from the start of the load.
        seconds: From the fault until it is undone.
    """

    def __init__(
        self,
        zookeeper: ZooKeeperServers,
        victim: ZooKeeperServer,
        fault: Callable[[], None],
        *,
        after: float,
        seconds: float,
    ) -> None:
        self._zookeeper = zookeeper
        self._victim = victim
        self._fault = fault
        self._after = after
        self._seconds = seconds
        self._happened_at = inf
        self._session: tuple[bool, bool] | None = None
        self._failure: BaseException | None = None

    def run(self, client: Client, arrivals: Sequence[Arrival]) -> tuple[Measured, Noticed]:
        """Run the load and return what came of it; closes the client."""
        driver = SyncDriver(lambda: client, threads=THREADS)
        thread = threading.Thread(target=self._happen, args=(client.writer,), daemon=True)
        try:
            used, began = time.process_time(), time.perf_counter()
            thread.start()
            samples = driver.open_loop(arrivals)
            thread.join()
            took = time.perf_counter() - began
        finally:
            self._victim.resume()
            if not self._victim.is_running:
                # By the thread that stays: children end with the thread that started them.
                self._victim.restart(wait=False)
            driver.close()
        if self._failure is not None or self._session is None:
            raise RuntimeError("the fault could not be looked at") from self._failure
        cpu = (time.process_time() - used) / took
        measured = Measured(driver.began_at, samples, self._after + self._seconds, cpu)
        happened = self._happened_at - driver.began_at
        return measured, noticed(samples, happened, *self._session)

    def _happen(self, writer: KazooClient) -> None:
        try:
            self._look_at_fault(writer)
        except BaseException as failure:
            self._failure = failure
        finally:
            self._victim.resume()  # what still waits for it is answered, so that the load ends

    def _look_at_fault(self, writer: KazooClient) -> None:
        until = time.perf_counter() + self._after
        session = writer.client_id[0]
        name = f"{EPHEMERAL}{session:x}"
        writer.create(name, ephemeral=True)
        time.sleep(max(0.0, until - time.perf_counter()))
        self._happened_at = time.perf_counter()
        self._fault()
        time.sleep(self._seconds)
        well = next(one for one in self._zookeeper.servers if one.serves_clients())
        with well.client() as client:
            client.sync(name)
            stat = client.exists(name)
        now = writer.client_id
        self._session = (
            now is not None and now[0] == session,
            stat is not None and stat.ephemeralOwner == session,
        )


def arrivals(rate: float, seconds: float, read_part: float, seed: str) -> list[Arrival]:
    """Return operations of random nodes, at equal distances."""
    rng = random.Random(seed)
    made = []
    for number in range(round(rate * seconds)):
        node = path(rng.randrange(NODES))
        is_read = rng.random() < read_part
        operation = (
            Operation("read", "get", (node,)) if is_read else Operation("write", "put", (node,))
        )
        made.append(Arrival(number / rate, operation))
    return made


def noticed(
    samples: Sequence[Sample], happened: float, keeps_session: bool, keeps_ephemeral: bool
) -> Noticed:
    """Return what the samples tell of a fault.

    Args:
        samples: Of one load.
        happened: When the fault was, on the samples' clock.
        keeps_session: As in `Noticed`.
        keeps_ephemeral: As in `Noticed`.
    """
    # An operation that was on its way when it happened is one that noticed.
    later = [sample for sample in samples if sample.at + sample.latency >= happened]
    failed = [sample for sample in later if sample.error is not None]
    served = {
        kind: min(
            (
                sample.at + sample.latency
                for sample in later
                if sample.kind == kind and sample.error is None and sample.at >= happened
            ),
            default=inf,
        )
        for kind in KINDS
    }
    return Noticed(
        failed=len(failed),
        serving=max(served.values()) - happened,
        last_failure=max((max(0.0, sample.at - happened) for sample in failed), default=0.0),
        longest=max((sample.latency for sample in later), default=0.0),
        keeps_session=keeps_session,
        keeps_ephemeral=keeps_ephemeral,
    )


def table_of_incidents(title: str, seen: dict[str, list[Noticed]]) -> TextTable:
    """Return the worst of its rounds for each contender."""
    rows = [
        [
            *("contender", "failed", "serving again after s", "last failure at s"),
            *("longest wait s", "same session", "ephemeral alive"),
        ]
    ]
    for name, rounds in seen.items():
        if rounds:
            serving = max(one.serving for one in rounds)
            rows.append(
                [
                    name,
                    str(max(one.failed for one in rounds)),
                    "never" if serving == inf else f"{serving:.2f}",
                    f"{max(one.last_failure for one in rounds):.2f}",
                    f"{max(one.longest for one in rounds):.2f}",
                    _of_all(one.keeps_session for one in rounds),
                    _of_all(one.keeps_ephemeral for one in rounds),
                ]
            )
    return {"title": title, "rows": rows}


def _of_all(kept: Iterable[bool]) -> str:
    found = list(kept)
    return f"{sum(found)} of {len(found)}"
