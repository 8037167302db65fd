"""Is it worth spreading linearizable reads over etcd's members, small ones and large ones?

Three members behind links with a round trip; closed loops of 128 workers that only read: one key
of 256 bytes, then ranges of 10, 50, 100 and 500 keys.

A read that a follower serves costs a round trip to the leader more, so with members that are idle
the leader alone is faster. What speaks for spreading is that the leader is one machine. Here all
share one, so each member is held to a bounded share of a processor (by a control group, which
needs root; without it the report says "unlimited", and there is nothing to win).

Expected: reads spread over the members, by hand (`spread`) or by `hybrid`, reach a higher
throughput than those of the leader alone (`leader_only`), at every size. `hybrid` reaches less than
`spread`: all members are saturated, the workers queue at the one that is slowest just then, and
that one looks sick.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

from bench.closed_loop import Workload
from bench.closed_testbed import WARM_UP
from bench.etcd.contenders import OURS, Contender
from bench.etcd.testbed import EtcdTestbed
from bench.etcd.workload import VALUE_SIZE, points, ranges
from bench.record import Bar, Plot, TextTable, bar
from bench.scenario import Outcome, Settings, Steps
from bench.servers.etcd import EtcdServers
from bench.servers.quota import CpuQuota, QuotaError
from bench.trials import Trials, paired, results, table_of_trials

MODE = "asyncio"
ROUNDS = 3
SECONDS = 3.0
WORKERS = 128
"""Enough to saturate three members: the fewer reads a follower has, the more each costs."""
SIZES = (1, 10, 50, 100, 500)
CPUS = 0.1
"""Of a processor, for each member."""
LEADER = Contender("leader_only", "leader")
SPREAD = Contender("spread", "limit")
CONTENDERS = [LEADER, SPREAD, Contender(OURS)]
PAPER = "+38 % to +178 %"


def run(settings: Settings, steps: Steps, contenders: Sequence[Contender] = CONTENDERS) -> Outcome:
    """Measure; see the module's docstring."""
    rounds, seconds = settings.rounds or ROUNDS, settings.seconds or SECONDS
    loads = {size: Workload(1.0, points() if size == 1 else ranges(size)) for size in SIZES}
    trials = {
        (size, one.name): Trials(f"{one.name}, {size} keys") for size in SIZES for one in contenders
    }
    steps.expect(rounds * len(trials))
    with EtcdTestbed(settings, workers=WORKERS) as testbed, _held(testbed.etcd) as cpus:
        for number in range(1, rounds + 1):
            for size, workload in loads.items():
                for contender in testbed.shuffled(contenders, number):
                    steps.begin(f"round {number} of {rounds}, {size} keys: {contender.name}")
                    with testbed.driving(contender) as driver:
                        warm_up = testbed.load(
                            min(WARM_UP, seconds), f"warm-up {number}", workload=workload
                        )
                        driver.run(warm_up)
                        load = testbed.load(seconds, f"round {number}", workload=workload)
                        trials[size, contender.name].add(driver.run(load))
        steps.finish()
        return Outcome(
            parameters=testbed.parameters(
                mix="100/0",
                bytes_per_key=VALUE_SIZE,
                cpus_per_member=cpus,
                rounds=rounds,
                seconds_per_slice=seconds,
                leader=testbed.etcd.leader().name,
            ),
            contenders=results(trials),
            bars=_bars(trials),
            tables=[*_gains(trials), table_of_trials(trials.values())],
            plots=[_plot(trials)],
            etcd_server=testbed.etcd.binary.version,
        )


@contextlib.contextmanager
def _held(etcd: EtcdServers) -> Iterator[str]:
    """Hold every member to its share; yield how large that is."""
    with contextlib.ExitStack() as stack:
        try:
            for member in etcd.members:
                quota = stack.enter_context(CpuQuota(f"lb-bench-{member.name}", CPUS))
                quota.hold([member.pid])
        except QuotaError as error:
            stack.close()
            yield f"unlimited ({error})"
        else:
            yield f"{CPUS:g}"


def _bars(trials: Mapping[tuple[int, str], Trials]) -> list[Bar]:
    if not all((size, name) in trials for size in SIZES for name in (LEADER.name, OURS)):
        return []
    return [
        bar(
            f"throughput {OURS} / leader_only, {size} keys",
            paired(trials[size, OURS], trials[size, LEADER.name], "throughput"),
            ">=",
            1.0,
        )
        for size in SIZES
    ]


def _gains(trials: Mapping[tuple[int, str], Trials]) -> list[TextTable]:
    names = [name for name in dict.fromkeys(of for _, of in trials) if name != LEADER.name]
    if not all((size, LEADER.name) in trials for size in SIZES):
        return []
    rows = [["throughput against leader_only", *names, "the paper, all sizes"]]
    for size in SIZES:
        leader = trials[size, LEADER.name]
        ratios = [paired(trials[size, name], leader, "throughput") for name in names]
        title = f"{size} keys, {size * VALUE_SIZE / 1024:g} KiB"
        rows.append([title, *(f"{(ratio - 1) * 100:+.1f} %" for ratio in ratios), PAPER])
    return [{"title": "spread reads beside the paper's (separate machines)", "rows": rows}]


def _plot(trials: Mapping[tuple[int, str], Trials]) -> Plot:
    return {
        "title": "Reads per second by size",
        "x": "keys per read",
        "y": "per second",
        "lines": [
            {
                "name": name,
                "points": [
                    (float(size), round(one.mean("throughput"), 1))
                    for (size, of), one in trials.items()
                    if of == name
                ],
            }
            for name in dict.fromkeys(of for _, of in trials)
        ],
    }
