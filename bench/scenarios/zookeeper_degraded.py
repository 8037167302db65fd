"""What does a slow follower cost kazoo's users, and whom does it still cost with `hybrid`?

Three servers behind links with a round trip; from one moment to the next one follower sends all
it has to say, to clients and to servers, 8 +- 2 ms late. A closed loop of threads that share a
client, 80 % reads. The session of `sticky` and of `stock_kazoo` is on the slow server, and
so are the writes of `round_robin` and `boltzmann`, which keep no session at the leader.

Expected: with `hybrid` the slow server leaves the reads within a second, and writes never were
there: throughput, read p50 and write p50 are within 10 % of the same ensemble with that server left
out by hand (`limit`).

Each round gives each contender a fresh client, in shuffled order: warm-up with an ensemble that is
well, onset, one measured slice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.closed_testbed import WARM_UP
from bench.record import Bar, TextTable, bar
from bench.scenario import Outcome, Settings, Steps
from bench.trials import Trials, paired, results, table_of_requests, table_of_trials
from bench.zookeeper.contenders import ALL, LIMIT, OURS, STICKY, STOCK, Contender
from bench.zookeeper.testbed import ZooKeeperTestbed, since

MODES = ("sync",)
ROUNDS = 3
SECONDS = 8.0
DELAY = 0.008
JITTER = 0.002

WITHIN = 0.10
PAPER = {"throughput": "x 5.5", "read_p50": "-82.6 %", "write_p50": "-80.7 %"}


def run(settings: Settings, steps: Steps, contenders: Sequence[Contender] = ALL) -> Outcome:
    """Measure; see the module's docstring."""
    rounds, seconds = settings.rounds or ROUNDS, settings.seconds or SECONDS
    with ZooKeeperTestbed(settings) as testbed:
        slow = testbed.zookeeper.followers[-1]
        place = testbed.place(slow, left_out=[slow])
        trials = {one.name: Trials(one.name, [slow.name]) for one in contenders}
        roles = testbed.roles
        for number, contender in testbed.rounds_of(steps, contenders, rounds):
            with testbed.driving(contender, place) as driver:
                driver.run(testbed.warm_up(number, seconds))
                before = testbed.received()
                slow.slow_down(DELAY, jitter=JITTER)
                try:
                    measured = driver.run(testbed.load(seconds, f"round {number}"))
                finally:
                    slow.heal()
                trials[contender.name].add(measured, since(before, testbed.received()))
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
                leader=testbed.zookeeper.leader().name,
                leader_moved=testbed.roles != roles,
            ),
            contenders=results(trials),
            bars=_bars(trials),
            tables=[
                table_of_trials(trials.values()),
                table_of_requests(trials.values(), roles | {slow.name: f"{slow.name} (slow)"}),
                *_beside_the_paper(trials),
            ],
            zookeeper_server=testbed.version,
        )


def _bars(trials: Mapping[str, Trials]) -> list[Bar]:
    if not {OURS, LIMIT.name} <= trials.keys():
        return []
    ours, limit = trials[OURS], trials[LIMIT.name]
    return [
        bar(f"throughput {OURS} / limit", paired(ours, limit, "throughput"), ">=", 1 - WITHIN),
        *(
            bar(f"{title} {OURS} / limit", paired(ours, limit, figure), "<=", 1 + WITHIN)
            for title, figure in (("read p50", "read_p50"), ("write p50", "write_p50"))
        ),
    ]


def _beside_the_paper(trials: Mapping[str, Trials]) -> list[TextTable]:
    rivals = [one.name for one in (STICKY, STOCK) if one.name in trials]
    if OURS not in trials or not rivals:
        return []

    def against(rival: str, figure: str) -> str:
        ratio = paired(trials[OURS], trials[rival], figure)
        return f"x {ratio:.1f}" if figure == "throughput" else f"{(ratio - 1) * 100:+.1f} %"

    rows = [["hybrid", *(f"against {rival}" for rival in rivals), "the paper, against sticky"]]
    rows += [
        [figure.replace("_", " "), *(against(rival, figure) for rival in rivals), paper]
        for figure, paper in PAPER.items()
    ]
    return [{"title": "beside the paper's figures (separate machines, 128 workers)", "rows": rows}]
