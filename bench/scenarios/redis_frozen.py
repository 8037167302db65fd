"""How many reads wait for a replica that has frozen?

One primary and two replicas; one replica is stopped by SIGSTOP: its connections stay open and it
never answers, so only the client's socket time-out (0.5 s) ends a wait. A closed loop of one
worker, as one thread of an application would meet it. The shards' own failure detection is kept
out of the way by a long node timeout.

Expected: with redis-py's replica rotation nearly every read waits, because each refresh of the
topology starts the rotation anew, at the frozen node. Ours waits once, ejects it, and then only
a rare probe waits: at most 3 reads above 100 ms in 12 s. `ideal` leaves the node out by hand.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.contenders import IDEAL, Contender, named
from bench.counters import calls_between
from bench.record import Recorder, bar
from bench.scenario import Outcome, Settings, Steps
from bench.testbed import Testbed, reads

CONTENDERS = [
    *named("round_robin", "round_robin_replicas"),
    *named("latency_based", "latency_based_replicas", "hybrid"),
    IDEAL,
]
JUDGED = ("latency_based", "latency_based_replicas")
SOCKET_TIMEOUT = 0.5
LIMIT = 1_000_000
WARM_UP_READS = 500
# Seconds: a read above this has waited for the frozen server.
SLOW = 0.1

SLOW_READS = 3.0


def run(settings: Settings, steps: Steps, contenders: Sequence[Contender] = CONTENDERS) -> Outcome:
    """Measure; see the module's docstring."""
    rounds, seconds = settings.rounds or 1, settings.seconds or 12.0
    operations = list(reads().operations)
    recorders = {contender.name: Recorder(contender.name) for contender in contenders}
    with Testbed(
        replicas=2, seed=settings.seed, mode=settings.mode, socket_timeout=SOCKET_TIMEOUT
    ) as testbed:
        frozen = testbed.servers.replicas[0]
        steps.expect(rounds * len(contenders))
        for number in range(1, rounds + 1):
            for contender in contenders:
                steps.begin(f"round {number} of {rounds}: {contender.name}")
                recorder = recorders[contender.name]
                with testbed.driving(contender, degraded=[frozen.endpoint]) as driver:
                    driver.closed_loop(operations, seconds=10, limit=WARM_UP_READS)
                    before = testbed.counter.read()
                    frozen.pause()
                    try:
                        samples = driver.closed_loop(operations, seconds=seconds, limit=LIMIT)
                    finally:
                        frozen.resume()
                frozen.wait_until_answering()
                # The thawed server has executed by now what was sent to it while it was frozen.
                calls = calls_between(before, testbed.counter.read())
                recorder.add_round(samples, seconds=seconds, calls=calls)
                slow = sum(sample.latency > SLOW for sample in samples)
                recorder.notes["reads_above_100_ms"] = max(
                    slow, recorder.notes.get("reads_above_100_ms", 0.0)
                )
        steps.finish()
        return Outcome(
            parameters={
                "workers": 1,
                "socket_timeout_s": SOCKET_TIMEOUT,
                "frozen_endpoint": frozen.endpoint,
                "degraded_endpoint": frozen.endpoint,
                "seconds_per_slice": seconds,
                "rounds": rounds,
                "primaries": len(testbed.servers.primaries),
                "replicas": len(testbed.servers.replicas),
            },
            contenders=[
                recorder.result(degraded=[frozen.endpoint]) for recorder in recorders.values()
            ],
            bars=[
                bar(
                    f"reads above 100 ms in {seconds:g} s, {name}",
                    recorders[name].notes["reads_above_100_ms"],
                    "<=",
                    SLOW_READS,
                )
                for name in JUDGED
                if name in recorders
            ],
            redis_server=testbed.servers.binary.version,
        )
