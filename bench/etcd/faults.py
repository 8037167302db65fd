"""Something that happens to the cluster under load, and what the clients noticed of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from bench.closed_loop import Driver, Load, Measured
from bench.load import Sample
from bench.record import TextTable
from bench.servers.etcd import EtcdMember, EtcdServers

LOOK_EVERY: Final = 0.03
"""Seconds between two looks for a new leader, which is how late its election is noticed."""
WATCHED: Final = 15.0
"""Seconds after which nobody looks for a new leader any more."""


@dataclass(frozen=True, slots=True)
class Aftermath:
    """What a client noticed of one fault; in seconds, calls by their start unless told.

    Attributes:
        read_errors: From the fault on.
        write_errors: From the fault on.
        last_read_error: From the fault to the last one; 0 if there was none.
        last_write_error: Likewise.
        elected: From the fault until a new leader was seen; None if the leader is well, inf if
            there was none.
        writes_resumed: From the new leader to the end of the next write that succeeded; inf if
            there was none. From the fault, if the leader is well.
        last_error_since: From the new leader to the last error; 0 if it was before.
    """

    read_errors: int
    write_errors: int
    last_read_error: float
    last_write_error: float
    elected: float | None
    writes_resumed: float
    last_error_since: float


class Disturbance:
    """Runs a load while something happens, from a thread of its own.

    Args:
        etcd: The cluster.
        after: Seconds from the start of the load.
        action: What happens.
        victim: Who ceases to lead, if the wait for another leader is of interest.
    """

    def __init__(
        self,
        etcd: EtcdServers,
        after: float,
        action: Callable[[], None],
        victim: EtcdMember | None = None,
    ) -> None:
        self._etcd = etcd
        self._after = after
        self._action = action
        self._victim = victim
        self._happened_at = inf
        self._elected_at = inf
        self._failure: BaseException | None = None
        self._is_over = threading.Event()

    def run(self, driver: Driver, load: Load) -> tuple[Measured, Aftermath]:
        """Run the load and return what came of it."""
        thread = threading.Thread(target=self._disturb, daemon=True)
        thread.start()
        try:
            measured = driver.run(load)
        finally:
            self._is_over.set()
            thread.join()
        if self._failure is not None:
            raise self._failure
        began_at = measured.began_at
        elected = None if self._victim is None else self._elected_at - began_at
        return measured, aftermath(measured.samples, self._happened_at - began_at, elected)

    def _disturb(self) -> None:
        try:
            if self._is_over.wait(self._after):
                raise RuntimeError("the load ended before anything had happened")
            self._happened_at = time.perf_counter()
            self._action()
            if self._victim is not None:
                self._watch(self._victim)
        except BaseException as failure:
            self._failure = failure

    def _watch(self, victim: EtcdMember) -> None:
        deadline = time.perf_counter() + WATCHED
        while time.perf_counter() < deadline:
            for member, status in self._etcd.statuses():
                if member is not victim and status.leader_id == status.member_id:
                    self._elected_at = time.perf_counter()
                    return
            if self._is_over.wait(LOOK_EVERY):
                return


def aftermath(samples: Sequence[Sample], happened: float, elected: float | None) -> Aftermath:
    """Return what the samples tell of a fault.

    Args:
        samples: Of one load.
        happened: When the fault was, on the samples' clock.
        elected: When a new leader was seen; None if the leader is well.
    """
    since = happened if elected is None else elected
    # A call that was on its way when it happened is one that noticed.
    failed = [s for s in samples if s.error is not None and s.at + s.latency >= happened]
    starts = {
        kind: [max(0.0, s.at - happened) for s in failed if s.kind == kind]
        for kind in ("read", "write")
    }
    written = [
        ended
        for s in samples
        if s.kind == "write" and s.error is None and (ended := s.at + s.latency) >= since
    ]
    return Aftermath(
        read_errors=len(starts["read"]),
        write_errors=len(starts["write"]),
        last_read_error=max(starts["read"], default=0.0),
        last_write_error=max(starts["write"], default=0.0),
        elected=None if elected is None else elected - happened,
        writes_resumed=min(written, default=inf) - since if since < inf else inf,
        last_error_since=max((max(0.0, s.at - since) for s in failed), default=0.0),
    )


def table_of_faults(title: str, seen: dict[str, list[Aftermath]]) -> TextTable:
    """Return the worst of its rounds for each contender."""
    rows = [
        [
            *("contender", "read errors", "write errors", "last read error at s"),
            *("last write error at s", "new leader at s", "writes again after s"),
        ]
    ]
    for name, all_rounds in seen.items():
        if all_rounds:
            rows.append([name, *_worst(all_rounds)])
    return {"title": title, "rows": rows}


def _worst(rounds: Sequence[Aftermath]) -> list[str]:
    elections = [one.elected for one in rounds if one.elected is not None]
    return [
        str(max(one.read_errors for one in rounds)),
        str(max(one.write_errors for one in rounds)),
        f"{max(one.last_read_error for one in rounds):.2f}",
        f"{max(one.last_write_error for one in rounds):.2f}",
        f"{max(elections):.2f}" if elections else "-",
        _seconds(max(one.writes_resumed for one in rounds)),
    ]


def _seconds(value: float) -> str:
    return "never" if value == inf else f"{value:.2f}"
