"""Are kazoo's writes faster in a session at ZooKeeper's leader, and its reads no slower?

Three servers, or five, that are all well; every link of clients and servers has a round trip of
its own. A closed loop of threads that share a client: 80 % reads of random nodes, 20 % writes.

Expected: a session on a follower, which `sticky` and `round_robin` have, hands its writes on to the
leader. With `hybrid` their p50 is within 5 % of writes that go to the leader only (`limit`, which
also spreads the reads by hand), and below round robin's; reads are as fast. `stock_kazoo` has
one session, in which reads wait for the writes before them.

Each round gives each contender a fresh client, in shuffled order: warm-up, one measured slice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.closed_testbed import WARM_UP
from bench.record import Bar, TextTable, bar
from bench.scenario import Outcome, Settings, Steps
from bench.trials import Trials, paired, results, table_of_requests, table_of_trials
from bench.zookeeper.contenders import ALL, LIMIT, OURS, ROUND_ROBIN, STICKY, Contender
from bench.zookeeper.testbed import ZooKeeperTestbed, since

MODES = ("sync",)
ROUNDS = 5
SECONDS = 5.0

WRITES_TO_LIMIT = 1.05
READS_TO_LIMIT = 1.03


def run(settings: Settings, steps: Steps, contenders: Sequence[Contender] = ALL) -> Outcome:
    """Measure; see the module's docstring."""
    rounds, seconds = settings.rounds or ROUNDS, settings.seconds or SECONDS
    trials = {contender.name: Trials(contender.name) for contender in contenders}
    with ZooKeeperTestbed(settings) as testbed:
        roles = testbed.roles
        place = testbed.place(testbed.zookeeper.followers[-1])
        for number, contender in testbed.rounds_of(steps, contenders, rounds):
            with testbed.driving(contender, place) as driver:
                driver.run(testbed.warm_up(number, seconds))
                before = testbed.received()
                measured = driver.run(testbed.load(seconds, f"round {number}"))
                trials[contender.name].add(measured, since(before, testbed.received()))
        steps.finish()
        return Outcome(
            parameters=testbed.parameters(
                rounds=rounds,
                seconds_per_slice=seconds,
                warm_up_s=WARM_UP,
                leader=testbed.zookeeper.leader().name,
                leader_moved=testbed.roles != roles,
            ),
            contenders=results(trials),
            bars=_bars(trials),
            tables=[
                table_of_trials(trials.values()),
                table_of_requests(trials.values(), roles),
                *_beside_the_paper(trials),
            ],
            zookeeper_server=testbed.version,
        )


def _bars(trials: Mapping[str, Trials]) -> list[Bar]:
    if not {OURS, ROUND_ROBIN, LIMIT.name} <= trials.keys():
        return []
    ours, other, limit = trials[OURS], trials[ROUND_ROBIN], trials[LIMIT.name]
    return [
        bar(f"write p50 {OURS} / limit", paired(ours, limit, "write_p50"), "<=", WRITES_TO_LIMIT),
        bar(f"write p50 {OURS} / {ROUND_ROBIN}", paired(ours, other, "write_p50"), "<=", 1.0),
        bar(f"read p50 {OURS} / limit", paired(ours, limit, "read_p50"), "<=", READS_TO_LIMIT),
        bar(f"read p50 {OURS} / {ROUND_ROBIN}", paired(ours, other, "read_p50"), "<=", 1.03),
    ]


def _beside_the_paper(trials: Mapping[str, Trials]) -> list[TextTable]:
    if not {OURS, ROUND_ROBIN, STICKY.name} <= trials.keys():
        return []
    ours, other, sticky = trials[OURS], trials[ROUND_ROBIN], trials[STICKY.name]
    rows = [["hybrid", "against round robin", "against sticky", "the paper"]]
    rows += [
        [
            name,
            *(f"{(paired(ours, one, figure) - 1) * 100:+.1f} %" for one in (other, sticky)),
            paper,
        ]
        for name, figure, paper in (
            ("write p50", "write_p50", "-6.9 %"),
            ("throughput", "throughput", "-"),
            ("read p50", "read_p50", "-"),
        )
    ]
    return [{"title": "beside the paper's figures (separate machines, 128 workers)", "rows": rows}]
