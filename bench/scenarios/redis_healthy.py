"""What does latency-aware choice cost a Redis Cluster client when nothing is wrong?

One primary and three replicas, all healthy; a closed loop of one worker, so that every microsecond
of the client shows in the throughput. redis-py's own round robin is the limit here: it spreads
evenly and measures nothing.

Expected: at least 97 % of its throughput, and even shares: in no window of 1,000 reads does one of
n endpoints get more than 1.2 / n. Both clients stay open and run in turn, the order alternating,
because a machine drifts more within a minute than the difference that is looked for.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack

from bench.contenders import Contender, named
from bench.counters import calls_between, logged_reads, logging_every_read
from bench.record import Recorder, bar
from bench.scenario import Outcome, Settings, Steps
from bench.testbed import Testbed, reads
from bench.workload import Operation

OURS = "latency_based"
STOCK = "round_robin"
CONTENDERS = named(STOCK, OURS)

LIMIT = 1_000_000
WARM_UP_READS = 2000
WINDOW = 1000
WINDOWED_READS = 20_000

THROUGHPUT = 0.97
EVENNESS = 1.2


def run(settings: Settings, steps: Steps, contenders: Sequence[Contender] = CONTENDERS) -> Outcome:
    """Measure; see the module's docstring."""
    rounds, seconds = settings.rounds or 5, settings.seconds or 3.0
    operations = list(reads().operations)
    recorders = {contender.name: Recorder(contender.name) for contender in contenders}
    throughput: dict[str, list[float]] = {name: [] for name in recorders}
    with Testbed(seed=settings.seed, mode=settings.mode) as testbed, ExitStack() as stack:
        steps.expect(rounds * len(contenders) + 1)
        drivers = {
            contender.name: stack.enter_context(testbed.driving(contender))
            for contender in contenders
        }
        for driver in drivers.values():
            driver.closed_loop(operations, seconds=60, limit=WARM_UP_READS)
        for number in range(1, rounds + 1):
            for name in list(drivers)[:: 1 if number % 2 else -1]:
                steps.begin(f"run {number} of {rounds}: {name}")
                before = testbed.counter.read()
                samples = drivers[name].closed_loop(operations, seconds=seconds, limit=LIMIT)
                calls = calls_between(before, testbed.counter.read())
                busy = sum(sample.latency for sample in samples)
                throughput[name].append(len(samples) / busy)
                recorders[name].add_round(samples, seconds=busy, calls=calls)
        steps.begin(f"shares in windows of {WINDOW} reads: {OURS}")
        # A key of its own for each read, so that the servers' logs say who executed which one.
        keys = [f"read:{i}" for i in range(WINDOWED_READS)]
        with logging_every_read(testbed.servers.nodes, limit=2 * WINDOWED_READS):
            drivers[OURS].closed_loop(
                [Operation("read", "get", (key,)) for key in keys],
                seconds=60,
                limit=WINDOWED_READS,
            )
        executed_by = logged_reads(testbed.servers.nodes)
        worst = worst_share([executed_by[key] for key in keys], WINDOW)
        recorders[OURS].notes["worst_share_in_1000_reads"] = worst
        steps.finish()
        pairs = zip(throughput[OURS], throughput[STOCK], strict=True)
        ratio = statistics.median(ours / stock for ours, stock in pairs)
        endpoints = len(testbed.servers.nodes)
        return Outcome(
            parameters={
                "workers": 1,
                "seconds_per_slice": seconds,
                "rounds": rounds,
                "primaries": len(testbed.servers.primaries),
                "replicas": len(testbed.servers.replicas),
            },
            contenders=[recorder.result() for recorder in recorders.values()],
            bars=[
                bar(f"throughput {OURS} / {STOCK}", ratio, ">=", THROUGHPUT),
                bar(
                    f"worst share of one of {endpoints} in {WINDOW} reads",
                    worst,
                    "<=",
                    EVENNESS / endpoints,
                ),
            ],
            redis_server=testbed.servers.binary.version,
        )


def worst_share(endpoints: Sequence[str], window: int) -> float:
    """Return the largest share that one endpoint had in any ``window`` successive reads.

    Args:
        endpoints: Who executed each read, in order; at least ``window`` of them.
        window: Number of reads.
    """
    counts = Counter(endpoints[:window])
    worst = max(counts.values())
    for leaving, entering in zip(endpoints, endpoints[window:], strict=False):
        counts[leaving] -= 1
        counts[entering] += 1
        worst = max(worst, counts[entering])
    return worst / window
