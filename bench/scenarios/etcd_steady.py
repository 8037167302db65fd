"""Are writes faster when they go straight to etcd's leader, and reads no slower?

Three members, or five, that are all well; every link of clients and members has a round trip of
its own. A closed loop of 32 workers: 80 % linearizable reads of random keys, 20 % writes.

Expected: round robin sends most writes to a follower, which only forwards them. With `hybrid`
their p50 is that of a leader-only write loop (`limit`, which also spreads the reads by hand), at
least 20 % below round robin's; the throughput is above its, and reads are as fast.
`one_endpoint` knows one follower, over as many connections as the others have.

Each round gives each contender a fresh client, in shuffled order: warm-up, one measured slice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.closed_testbed import WARM_UP
from bench.etcd.contenders import ALL, LIMIT, OURS, STOCK, Contender
from bench.etcd.testbed import EtcdTestbed
from bench.record import Bar, TextTable, bar
from bench.scenario import Outcome, Settings, Steps
from bench.trials import Trials, paired, results, table_of_shares, table_of_trials

MODE = "asyncio"
ROUNDS = 5
SECONDS = 5.0

WRITES_TO_LIMIT = 1.05
WRITES_TO_STOCK = 0.80
READS_TO_STOCK = 1.03
PAPER = {3: "-29.4 %", 5: "-36.7 %"}


def run(settings: Settings, steps: Steps, contenders: Sequence[Contender] = ALL) -> Outcome:
    """Measure; see the module's docstring."""
    rounds, seconds = settings.rounds or ROUNDS, settings.seconds or SECONDS
    trials = {contender.name: Trials(contender.name) for contender in contenders}
    with EtcdTestbed(settings) as testbed:
        roles = testbed.roles
        for number, contender in testbed.rounds_of(steps, contenders, rounds):
            with testbed.driving(contender) as driver:
                driver.run(testbed.warm_up(number, seconds))
                trials[contender.name].add(driver.run(testbed.load(seconds, f"round {number}")))
        steps.finish()
        return Outcome(
            parameters=testbed.parameters(
                rounds=rounds,
                seconds_per_slice=seconds,
                warm_up_s=WARM_UP,
                leader=testbed.etcd.leader().name,
                leader_moved=testbed.roles != roles,
            ),
            contenders=results(trials),
            bars=_bars(trials),
            tables=[
                table_of_trials(trials.values()),
                table_of_shares(trials.values(), roles),
                *_beside_the_paper(trials, len(testbed.etcd.members)),
            ],
            etcd_server=testbed.etcd.binary.version,
        )


def _bars(trials: Mapping[str, Trials]) -> list[Bar]:
    if not {OURS, STOCK, LIMIT.name} <= trials.keys():
        return []
    ours, stock, limit = trials[OURS], trials[STOCK], trials[LIMIT.name]
    return [
        bar(f"write p50 {OURS} / limit", paired(ours, limit, "write_p50"), "<=", WRITES_TO_LIMIT),
        bar(f"write p50 {OURS} / {STOCK}", paired(ours, stock, "write_p50"), "<=", WRITES_TO_STOCK),
        bar(f"read p50 {OURS} / {STOCK}", paired(ours, stock, "read_p50"), "<=", READS_TO_STOCK),
        bar(f"throughput {OURS} / {STOCK}", paired(ours, stock, "throughput"), ">=", 1.0),
    ]


def _beside_the_paper(trials: Mapping[str, Trials], members: int) -> list[TextTable]:
    if not {OURS, STOCK} <= trials.keys():
        return []
    ours, stock = trials[OURS], trials[STOCK]
    rows = [["hybrid against round robin", "here", "the paper"]]
    rows += [
        [name, f"{(paired(ours, stock, figure) - 1) * 100:+.1f} %", paper]
        for name, figure, paper in (
            ("write p50", "write_p50", PAPER[members]),
            ("throughput", "throughput", "+8.8 %" if members == 5 else "-"),
            ("read p50", "read_p50", "-"),
        )
    ]
    return [{"title": "beside the paper's figures (separate machines, 128 workers)", "rows": rows}]
