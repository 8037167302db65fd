"""Does a slow follower hurt the operations of an etcd client?

Three members behind links with a round trip; from one moment to the next one follower sends all
it has to say, to clients and to members, 8 +- 2 ms late. A closed loop of 32 workers, 80 % reads.

Expected: round robin leaves it a third of the reads, and of the writes, which wait for it. With
`hybrid` it has left the pool after a second: at most 0.5 % of the reads, for probes, and read and
write p99 and the throughput are within 10 % of the same cluster with that member left out by hand
(`limit`). `one_endpoint` knows the slow member only.

Each round gives each contender a fresh client, in shuffled order: warm-up with a cluster that is
well, onset, one measured slice.
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
ROUNDS = 3
SECONDS = 8.0
DELAY = 0.008
JITTER = 0.002
SETTLED = 1.0
"""Seconds after onset from which the slow member's share counts."""

SHARE_OF_SLOW = 0.005
WITHIN = 0.10


def run(settings: Settings, steps: Steps, contenders: Sequence[Contender] = ALL) -> Outcome:
    """Measure; see the module's docstring."""
    rounds, seconds = settings.rounds or ROUNDS, settings.seconds or SECONDS
    with EtcdTestbed(settings) as testbed:
        slow = testbed.etcd.followers[-1]
        place = testbed.place(configured=slow, left_out=[slow])
        trials = {one.name: Trials(one.name, [slow.name], SETTLED) for one in contenders}
        roles = testbed.roles
        for number, contender in testbed.rounds_of(steps, contenders, rounds):
            with testbed.driving(contender, place) as driver:
                driver.run(testbed.warm_up(number, seconds))
                slow.slow_down(DELAY, jitter=JITTER)
                try:
                    measured = driver.run(testbed.load(seconds, f"round {number}"))
                finally:
                    slow.heal()
            trials[contender.name].add(measured)
        steps.finish()
        given = slow.delays_given().client_reply
        return Outcome(
            parameters=testbed.parameters(
                delay_ms=DELAY * 1e3,
                jitter_ms=JITTER * 1e3,
                slow_replies_given_ms={"p99": round(given.p99 * 1e3, 2)},
                degraded_endpoint=slow.name,
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
                table_of_shares(trials.values(), roles | {slow.name: f"{slow.name} (slow)"}),
                *_beside_the_paper(trials),
            ],
            etcd_server=testbed.etcd.binary.version,
        )


def _bars(trials: Mapping[str, Trials]) -> list[Bar]:
    if not {OURS, LIMIT.name} <= trials.keys():
        return []
    ours, limit = trials[OURS], trials[LIMIT.name]
    share = max(ours.values("degraded_share"))
    return [
        bar(f"share of the slow member after {SETTLED:g} s", share, "<=", SHARE_OF_SLOW),
        *(
            bar(f"{title} {OURS} / limit", paired(ours, limit, figure), "<=", 1 + WITHIN)
            for title, figure in (("read p99", "read_p99"), ("write p99", "write_p99"))
        ),
        bar(f"throughput {OURS} / limit", paired(ours, limit, "throughput"), ">=", 1 - WITHIN),
    ]


def _beside_the_paper(trials: Mapping[str, Trials]) -> list[TextTable]:
    if not {OURS, STOCK} <= trials.keys():
        return []
    ours, stock = trials[OURS], trials[STOCK]
    shares = " -> ".join(f"{one.mean('degraded_share'):.1%}" for one in (stock, ours))
    rows = [
        ["hybrid against round robin", "here", "the paper"],
        ["slow member's share of the reads", shares, "33 % -> 0.5 %"],
    ]
    rows += [
        [name, f"{(paired(ours, stock, figure) - 1) * 100:+.1f} %", paper]
        for name, figure, paper in (
            ("read p99", "read_p99", "-64 %"),
            ("write p99", "write_p99", "-74 %"),
            ("throughput", "throughput", "+89 %"),
        )
    ]
    return [{"title": "beside the paper's figures (separate machines, 128 workers)", "rows": rows}]
