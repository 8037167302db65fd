"""Does a slow replica hurt the reads of a Redis Cluster client?

One primary and three replicas; one replica (or two) answers 8 +- 2 ms late from one moment to the
next, and nothing else is wrong with it. Arrivals are independent of the answers, as users are.

Expected: with one of the client's own strategies every slow endpoint keeps its full share, and p99
is the slow endpoint's. With ours p99 is that of a cluster without the slow one (`ideal`), it gets
a few reads per thousand, and when it is well again it is used again.

Each round gives each contender a fresh client, in shuffled order: warm-up with a healthy
cluster, onset, one measured slice under the same arrivals. The share is counted by the servers.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from bench.contenders import IDEAL, Contender, named, peers
from bench.counters import calls_between
from bench.record import Bar, Recorder, bar, paired_ratio, shares_over_time
from bench.scenario import Outcome, Settings, Steps
from bench.testbed import Testbed, reads

DELAY = 0.008
JITTER = 0.002
WARM_UP = 1.5
SAMPLE_EVERY = 0.25
# Seconds: how long the healing client sees the fault, and how long it may take afterwards.
ONSET = 10
HEALING = 15

OURS = "latency_based"
STOCK = "round_robin"
CONTENDERS = [
    *named("round_robin", "round_robin_replicas", "random", "random_replica"),
    *named("latency_based", "latency_based_replicas", "hybrid", "boltzmann"),
    IDEAL,
]

# brpc's published ratio of round robin to latency-aware with one of four servers slow.
RATIO_TO_STOCK = 19.0
RATIO_TO_IDEAL = {1: 1.10, 2: 1.25}
SHARE_OF_SLOW = 0.005
READS_AFTER_ONSET = 10.0


def run(settings: Settings, steps: Steps, contenders: Sequence[Contender] = CONTENDERS) -> Outcome:
    """Measure; see the module's docstring."""
    rounds = settings.rounds or (3 if settings.degraded == 1 else 2)
    if settings.peers:
        contenders = [*contenders, *peers(settings.mode)]
    heals = any(contender.name == OURS for contender in contenders)
    recorders = {contender.name: Recorder(contender.name) for contender in contenders}
    with Testbed(degraded=settings.degraded, seed=settings.seed, mode=settings.mode) as testbed:
        if any(contender.is_peer for contender in contenders):
            testbed.announce_proxies()
        steps.expect(rounds * len(contenders) + heals)
        for number in range(1, rounds + 1):
            order = list(contenders)
            random.Random(f"{settings.seed} order {number}").shuffle(order)
            for contender in order:
                steps.begin(f"round {number} of {rounds}: {contender.name}")
                _measure(testbed, contender, recorders[contender.name], settings, number)
        healing: dict[str, float] = {}
        if heals:
            steps.begin(f"healing: {OURS}")
            healing = _measure_healing(testbed, settings)
            recorders[OURS].notes.update(healing)
        steps.finish()
        return Outcome(
            parameters={
                "delay_ms": DELAY * 1000,
                "jitter_ms": JITTER * 1000,
                "delay_given": testbed.delays_given(),
                "degraded_endpoint": ", ".join(testbed.degraded_endpoints),
                "arrivals_per_s": _rate(settings),
                "seconds_per_slice": _seconds(settings),
                "warm_up_s": WARM_UP,
                "rounds": rounds,
                "primaries": len(testbed.servers.primaries),
                "replicas": len(testbed.servers.replicas),
            },
            contenders=[
                recorder.result(degraded=testbed.degraded_endpoints)
                for recorder in recorders.values()
            ],
            bars=_bars(recorders, testbed.degraded_endpoints, healing),
            redis_server=testbed.servers.binary.version,
        )


def _measure(
    testbed: Testbed, contender: Contender, recorder: Recorder, settings: Settings, number: int
) -> None:
    rate, seconds = _rate(settings), _seconds(settings)
    warm_up = testbed.arrivals(reads(), rate=rate, seconds=WARM_UP, name=f"warm-up {number}")
    arrivals = testbed.arrivals(reads(), rate=rate, seconds=seconds, name=f"round {number}")
    with testbed.driving(contender) as driver:
        with testbed.counter.sampling(SAMPLE_EVERY) as counts:
            driver.open_loop(warm_up)
            testbed.slow_down(DELAY, JITTER)
            before = testbed.counter.read()
            samples = driver.open_loop(arrivals)
        after = testbed.counter.read()
        testbed.heal()
    recorder.add_round(samples, seconds=seconds, calls=calls_between(before, after))
    if not recorder.timeline:
        recorder.timeline = shares_over_time(counts, onset_at=before.at)


def _measure_healing(testbed: Testbed, settings: Settings) -> dict[str, float]:
    """Return reads of the slow endpoints after onset, and seconds until they are back."""
    rate = _rate(settings)
    fair = len(testbed.degraded) / len(testbed.servers.nodes)
    (contender,) = named(OURS)
    with testbed.driving(contender) as driver:
        driver.open_loop(testbed.arrivals(reads(), rate=rate, seconds=WARM_UP, name="heal"))
        testbed.slow_down(DELAY, JITTER)
        before = testbed.counter.read()
        driver.open_loop(testbed.arrivals(reads(), rate=rate, seconds=ONSET, name="onset"))
        after = testbed.counter.read()
        testbed.heal()
        slow_reads = _degraded_calls(testbed, calls_between(before, after))
        for second in range(1, HEALING + 1):
            before = testbed.counter.read()
            arrivals = testbed.arrivals(reads(), rate=rate, seconds=1.0, name=f"heal {second}")
            driver.open_loop(arrivals)
            calls = calls_between(before, testbed.counter.read())
            if _degraded_calls(testbed, calls) > fair / 2 * sum(calls.values()):
                break
        else:
            second = HEALING + 1
    return {
        "slow_reads_in_10_s_per_endpoint": slow_reads / len(testbed.degraded),
        "seconds_until_back": float(second),
    }


def _degraded_calls(testbed: Testbed, calls: dict[str, int]) -> int:
    return sum(calls[endpoint] for endpoint in testbed.degraded_endpoints)


def _bars(
    recorders: dict[str, Recorder], degraded: Sequence[str], healing: dict[str, float]
) -> list[Bar]:
    ours, stock, ideal = (recorders.get(name) for name in (OURS, STOCK, IDEAL.name))
    if not (ours and stock and ideal):
        return []
    slow = len(degraded)
    share = ours.share_of(degraded) / slow
    bars = [
        bar(
            f"p99 {OURS} / {IDEAL.name}",
            paired_ratio(ours, ideal),
            "<=",
            RATIO_TO_IDEAL.get(slow, RATIO_TO_IDEAL[2]),
        ),
        bar("share of a slow endpoint", share, "<=", SHARE_OF_SLOW),
        bar(
            f"reads of a slow endpoint in {ONSET} s after onset",
            healing["slow_reads_in_10_s_per_endpoint"],
            "<=",
            READS_AFTER_ONSET,
        ),
        bar(
            "seconds until a healed endpoint has half its fair share",
            healing["seconds_until_back"],
            "<=",
            float(HEALING),
        ),
    ]
    if slow == 1:
        to_stock = paired_ratio(stock, ours)
        bars.insert(0, bar(f"p99 {STOCK} / {OURS}", to_stock, ">=", RATIO_TO_STOCK))
    return bars


def _rate(settings: Settings) -> float:
    return settings.arrivals or 800.0


def _seconds(settings: Settings) -> float:
    # The onset costs each slow endpoint a few reads: with two of them in a shorter slice, these
    # alone are the last per cent.
    return settings.seconds or (6.0 if settings.degraded == 1 else 10.0)
