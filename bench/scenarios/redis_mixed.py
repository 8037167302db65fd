"""Does one slow kind of read make healthy endpoints look sick?

One primary and three replicas, all healthy; GETs with 5 % LRANGEs of whole lists, which take many
times as long. Arrivals are independent of the answers.

Expected: no endpoint is ejected, and the p99 of the GETs is at most 1.1 of the ideal's. The ideal
is redis-py's round robin: where no endpoint is worse than another, an even rotation is the limit
of what a choice by endpoint can do. It competes twice, as `round_robin` and as `ideal`, so that
the difference between these two shows what the machine adds by itself.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from bench.contenders import IDEAL, Contender, named
from bench.counters import calls_between
from bench.load import Driver
from bench.record import Recorder, bar, paired_ratio
from bench.scenario import Outcome, Settings, Steps
from bench.testbed import LIST_LENGTH, Testbed, reads_and_ranges

if TYPE_CHECKING:
    from lb_strategies_redis import RedisCluster

OURS = "latency_based"
CONTENDERS = [
    *named("round_robin", "random", "latency_based", "latency_based_replicas", "hybrid"),
    IDEAL,
]
PART_OF_RANGES = 0.05
WARM_UP = 1.5

RATIO_TO_IDEAL = 1.1


def run(settings: Settings, steps: Steps, contenders: Sequence[Contender] = CONTENDERS) -> Outcome:
    """Measure; see the module's docstring."""
    rounds, seconds = settings.rounds or 3, settings.seconds or 4.0
    rate = settings.arrivals or 800.0
    mix = reads_and_ranges(PART_OF_RANGES)
    recorders = {contender.name: Recorder(contender.name) for contender in contenders}
    commands = ("get", "lrange")
    with Testbed(seed=settings.seed, mode=settings.mode, commands=commands) as testbed:
        steps.expect(rounds * len(contenders))
        for number in range(1, rounds + 1):
            warm_up = testbed.arrivals(mix, rate=rate, seconds=WARM_UP, name=f"warm-up {number}")
            arrivals = testbed.arrivals(mix, rate=rate, seconds=seconds, name=f"round {number}")
            order = list(contenders)
            random.Random(f"{settings.seed} order {number}").shuffle(order)
            for contender in order:
                steps.begin(f"round {number} of {rounds}: {contender.name}")
                recorder = recorders[contender.name]
                with testbed.driving(contender) as driver:
                    driver.open_loop(warm_up)
                    before = testbed.counter.read()
                    samples = driver.open_loop(arrivals)
                    calls = calls_between(before, testbed.counter.read())
                    if contender.is_ours:
                        ejections = recorder.notes.get("ejections", 0.0) + count_ejections(driver)
                        recorder.notes["ejections"] = ejections
                recorder.add_round(samples, seconds=seconds, calls=calls)
        steps.finish()
        ours, ideal = recorders[OURS], recorders[IDEAL.name]
        return Outcome(
            parameters={
                "arrivals_per_s": rate,
                "part_of_ranges": PART_OF_RANGES,
                "elements_per_range": LIST_LENGTH,
                "seconds_per_slice": seconds,
                "warm_up_s": WARM_UP,
                "rounds": rounds,
                "primaries": len(testbed.servers.primaries),
                "replicas": len(testbed.servers.replicas),
            },
            contenders=[recorder.result() for recorder in recorders.values()],
            bars=[
                bar("ejections of healthy endpoints", ours.notes["ejections"], "<=", 0.0),
                bar(
                    f"GET p99 {OURS} / {IDEAL.name}",
                    paired_ratio(ours, ideal, method="get"),
                    "<=",
                    RATIO_TO_IDEAL,
                ),
            ],
            redis_server=testbed.servers.binary.version,
        )


def count_ejections(driver: Driver) -> float:
    """Return how often the client of one of our strategies ejected an endpoint."""
    stats = cast("RedisCluster", driver.client).endpoint_stats()
    return float(sum(endpoint.ejections for endpoint in stats.values()))
