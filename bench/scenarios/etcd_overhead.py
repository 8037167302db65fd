"""What does the routing channel of etcd cost beside a bare channel to the same member?

One member's address, no links, one call at a time, only reads and then only writes. The contenders
take turns of a tenth of a second, and each trial has new channels: which threads and connections
gRPC happens to get makes a few per cent of difference. With one member there is nothing to choose,
so what differs is the cost of the layer; a longer round trip would hide it.

Expected: `hybrid` reaches 0.97 of the throughput of a channel as gRPC makes it, `bare`.
`bare_no_retries` has gRPC's own retries off, as the routing channel must have them (gRPC sends
again what may have been executed); that alone saves 2 to 3 %, so beside it we look worse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from statistics import fmean
from typing import Final

from bench.closed_loop import Driver, Load, Measured, Workload
from bench.closed_testbed import TIMEOUT
from bench.etcd.contenders import OURS, Contender, Place
from bench.etcd.load import open_driver
from bench.etcd.workload import points, puts
from bench.record import Bar, TextTable, bar
from bench.scenario import Outcome, Settings, Steps
from bench.servers.etcd import EtcdServers
from bench.servers.process import taking_precedence
from bench.trials import KINDS, Trials, paired, results, table_of_trials
from bench.workload import Kind

TRIALS: Final = 20
SECONDS: Final = 1.0
"""Of each contender, with each kind, in a trial."""
TURN: Final = 0.1
"""Seconds until the next contender's turn."""
LEAST: Final = 0.97
BARE: Final = Contender("bare", "bare")
CONTENDERS = [BARE, Contender("bare_no_retries", "bare_no_retries"), Contender(OURS)]
WORKLOADS: Final[Mapping[Kind, Workload]] = {
    "read": Workload(1.0, points()),
    "write": Workload(0.0, (), puts()),
}


def run(settings: Settings, steps: Steps, contenders: Sequence[Contender] = CONTENDERS) -> Outcome:
    """Measure; see the module's docstring."""
    count, seconds = settings.rounds or TRIALS, settings.seconds or SECONDS
    trials = {
        (kind, one.name): Trials(f"{one.name}, {kind}s") for kind in KINDS for one in contenders
    }
    steps.expect(count)
    with ExitStack() as stack:
        stack.enter_context(taking_precedence())
        etcd = stack.enter_context(EtcdServers(members=3, seed=settings.seed))
        leader = etcd.leader().endpoint
        for number in range(count):
            steps.begin(f"trial {number + 1} of {count}")
            with ExitStack() as clients:
                drivers = {}
                for one in contenders:
                    place = Place([leader], leader, leader)
                    drivers[one.name] = driver = open_driver(one, place, settings.mode, {})
                    clients.callback(driver.close)
                for kind in KINDS:
                    for name, measured in _in_turn(drivers, kind, number, seconds).items():
                        trials[kind, name].add(measured)
        steps.finish()
        return Outcome(
            parameters={
                "mode": settings.mode,
                "trials": count,
                "seconds_per_kind_and_trial": seconds,
                "seconds_per_turn": TURN,
                "workers": 1,
            },
            contenders=results(trials),
            bars=_bars(trials),
            tables=[*_costs(trials, contenders), table_of_trials(trials.values())],
            etcd_server=etcd.binary.version,
        )


def _in_turn(
    drivers: Mapping[str, Driver], kind: Kind, number: int, seconds: float
) -> dict[str, Measured]:
    """Let the contenders take turns; return what each did in all of its own."""
    turns: dict[str, list[Measured]] = {name: [] for name in drivers}
    names = list(drivers)
    for turn in range(-1, max(1, round(seconds / TURN))):
        # Each comes after each other one, and first, equally often.
        first = (turn + number) % len(names)
        order = [*names[first:], *names[:first]]
        for name in order if turn % 2 else reversed(order):
            load = Load(WORKLOADS[kind], 1, TURN, TIMEOUT, f"trial {number}, turn {turn}")
            measured = drivers[name].run(load)
            if turn >= 0:  # else it was to warm up
                turns[name].append(measured)
    return {name: _together(each) for name, each in turns.items()}


def _together(turns: Iterable[Measured]) -> Measured:
    each = list(turns)
    return Measured(
        each[0].began_at,
        [sample for one in each for sample in one.samples],
        sum(one.seconds for one in each),
        fmean(one.cpu for one in each),
    )


def _bars(trials: Mapping[tuple[Kind, str], Trials]) -> list[Bar]:
    if not all((kind, name) in trials for kind in KINDS for name in (BARE.name, OURS)):
        return []
    return [
        bar(
            f"throughput {OURS} / bare, {kind}s",
            paired(trials[kind, OURS], trials[kind, BARE.name], "throughput"),
            ">=",
            LEAST,
        )
        for kind in KINDS
    ]


def _costs(
    trials: Mapping[tuple[Kind, str], Trials], contenders: Sequence[Contender]
) -> list[TextTable]:
    """Return what a call takes with each contender, of the clock's time and of the processor's."""
    rows = [["contender", *(f"{kind} {what}" for kind in KINDS for what in ("us", "CPU us"))]]
    for one in contenders:
        row = [one.name]
        for kind in KINDS:
            rate = trials[kind, one.name].mean("throughput")
            row += [f"{1e6 / rate:.0f}", f"{1e6 * trials[kind, one.name].mean('cpu') / rate:.1f}"]
        rows.append(row)
    return [{"title": "microseconds per call", "rows": rows}]
