"""How long does an etcd client suffer from a member that has frozen?

Three members behind links with a round trip; under load one of them is stopped by SIGSTOP: its
connections stay open and it never answers. First a follower, then, in a part of its own, the
leader, whom the others replace after one to two seconds of silence. A closed loop of 32 workers,
80 % reads, one second of patience per call.

Expected: gRPC's round robin sends a third of everything to the frozen member until the end, and
`one_endpoint`, which knows that member only, all. With `hybrid` and a frozen follower no write
fails, and reads fail within the first second at most; with a frozen leader writes go on within
a second after the others have a new one. `limit` leaves the follower out by hand; of a leader's
failure nobody could know beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.closed_testbed import WARM_UP
from bench.etcd.contenders import ALL, OURS, Contender
from bench.etcd.faults import Aftermath, Disturbance, table_of_faults
from bench.etcd.testbed import EtcdTestbed
from bench.record import Bar, bar
from bench.scenario import Outcome, Settings, Steps
from bench.trials import Trials, results, table_of_errors, table_of_trials

MODE = "asyncio"
ROUNDS = 2
SECONDS = 8.0
"""After the pause."""
ONSET = 0.5
"""Seconds from the start of a slice to the pause."""
TIMEOUT = 1.0

LAST_READ_ERROR = 1.0
WRITES_AFTER_ELECTION = 1.0


def run(settings: Settings, steps: Steps, contenders: Sequence[Contender] = ALL) -> Outcome:
    """Measure; see the module's docstring."""
    rounds, seconds = settings.rounds or ROUNDS, settings.seconds or SECONDS
    parts = {
        "follower": list(contenders),
        "leader": [one for one in contenders if one.kind != "limit"],
    }
    trials = {
        (part, one.name): Trials(f"{one.name}, paused {part}")
        for part, competing in parts.items()
        for one in competing
    }
    seen: dict[str, dict[str, list[Aftermath]]] = {
        part: {one.name: [] for one in competing} for part, competing in parts.items()
    }
    steps.expect(rounds * sum(map(len, parts.values())))
    with EtcdTestbed(settings) as testbed:
        for number in range(1, rounds + 1):
            for part, competing in parts.items():
                for contender in testbed.shuffled(competing, number):
                    name = contender.name
                    steps.begin(f"round {number} of {rounds}, paused {part}: {name}")
                    found = _measure(testbed, contender, part, number, seconds, trials[part, name])
                    seen[part][name].append(found)
        steps.finish()
        return Outcome(
            parameters=testbed.parameters(
                timeout_s=TIMEOUT,
                onset_s=ONSET,
                seconds_per_slice=ONSET + seconds,
                warm_up_s=WARM_UP,
                rounds=rounds,
            ),
            contenders=results(trials),
            bars=[*_bars_of_follower(seen["follower"]), *_bars_of_leader(seen["leader"])],
            tables=[
                *(
                    table_of_faults(f"paused {part}, the worst of {rounds} rounds", found)
                    for part, found in seen.items()
                ),
                table_of_errors(trials.values()),
                table_of_trials(trials.values()),
            ],
            etcd_server=testbed.etcd.binary.version,
        )


def _measure(
    testbed: EtcdTestbed,
    contender: Contender,
    part: str,
    number: int,
    seconds: float,
    trials: Trials,
) -> Aftermath:
    etcd = testbed.etcd
    is_leader = part == "leader"
    victim = etcd.leader() if is_leader else etcd.followers[-1]
    place = testbed.place(configured=victim, left_out=[victim])
    disturbance = Disturbance(etcd, ONSET, victim.pause, victim if is_leader else None)
    load = testbed.load(ONSET + seconds, f"{part} {number}", timeout=TIMEOUT)
    with testbed.driving(contender, place) as driver:
        driver.run(testbed.warm_up(number, seconds))
        try:
            measured, found = disturbance.run(driver, load)
        finally:
            victim.resume()
    etcd.wait_until_ready()
    trials.add(measured)
    return found


def _bars_of_follower(seen: dict[str, list[Aftermath]]) -> list[Bar]:
    if OURS not in seen:
        return []
    ours = seen[OURS]
    return [
        bar(
            f"write errors, paused follower, {OURS}",
            max(one.write_errors for one in ours),
            "<=",
            0,
        ),
        bar(
            f"seconds from pause to last failed read, paused follower, {OURS}",
            max(one.last_read_error for one in ours),
            "<=",
            LAST_READ_ERROR,
        ),
    ]


def _bars_of_leader(seen: dict[str, list[Aftermath]]) -> list[Bar]:
    if OURS not in seen:
        return []
    return [
        bar(
            f"seconds from new leader to next write, paused leader, {OURS}",
            max(one.writes_resumed for one in seen[OURS]),
            "<=",
            WRITES_AFTER_ELECTION,
        ),
        bar(
            f"seconds from new leader to last failed call, paused leader, {OURS}",
            max(one.last_error_since for one in seen[OURS]),
            "<=",
            WRITES_AFTER_ELECTION,
        ),
    ]
