"""How many calls does a change of etcd's leader cost?

Three members behind links with a round trip, 80 % reads. Three parts:

* `kill`: 32 workers with 10 s of patience per call, as users have who would rather wait than fail.
  The leader is killed, and the others elect a new one after one to two seconds. What fails are
  the writes that were on their way: whether they have been executed nobody knows.
* `kill, 1 s`: 4 workers with one second of patience, less than an election takes, so that every
  worker's calls must fail during it, whatever the client does.
* `move`: leadership is handed over five times under the load of 32 workers.

Expected with `hybrid`: at most 18 errors by a kill, the last within a second of the new leader,
and none by moves. `one_endpoint` knows the leader only; there is no `limit` that could know of a
failure beforehand.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.closed_testbed import WARM_UP
from bench.etcd.contenders import ALL, OURS, Contender
from bench.etcd.faults import Aftermath, Disturbance, table_of_faults
from bench.etcd.testbed import EtcdTestbed
from bench.record import Bar, TextTable, bar
from bench.scenario import Outcome, Settings, Steps
from bench.trials import Trials, results, table_of_errors, table_of_trials

MODE = "asyncio"
ROUNDS = 2
SECONDS = 6.0
"""After the kill."""
ONSET = 0.5
"""Seconds from the start of a slice to the kill, or to the first move."""
MOVES = 5
BETWEEN_MOVES = 0.8

ERRORS = 18.0
RECOVERED = 1.0


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of change; ``timeout`` in seconds, ``workers`` None for as many as asked for."""

    name: str
    timeout: float
    workers: int | None = None
    moves: bool = False


PARTS = (Part("kill", 10.0), Part("kill, 1 s", 1.0, workers=4), Part("move", 1.0, moves=True))


def run(settings: Settings, steps: Steps, contenders: Sequence[Contender] = ALL) -> Outcome:
    """Measure; see the module's docstring."""
    rounds, seconds = settings.rounds or ROUNDS, settings.seconds or SECONDS
    competing = [one for one in contenders if one.kind != "limit"]
    trials = {
        (part.name, one.name): Trials(f"{one.name}, {part.name}")
        for part in PARTS
        for one in competing
    }
    seen: dict[str, dict[str, list[Aftermath]]] = {
        part.name: {one.name: [] for one in competing} for part in PARTS
    }
    steps.expect(rounds * len(PARTS) * len(competing))
    with EtcdTestbed(settings) as testbed:
        for number in range(1, rounds + 1):
            for part in PARTS:
                for contender in testbed.shuffled(competing, number):
                    name = contender.name
                    steps.begin(f"round {number} of {rounds}, {part.name}: {name}")
                    found = _measure(
                        testbed, contender, part, number, seconds, trials[part.name, name]
                    )
                    seen[part.name][name].append(found)
        steps.finish()
        return Outcome(
            parameters=testbed.parameters(
                timeouts_s={part.name: part.timeout for part in PARTS},
                onset_s=ONSET,
                seconds_per_slice=ONSET + seconds,
                warm_up_s=WARM_UP,
                moves=MOVES,
                rounds=rounds,
            ),
            contenders=results(trials),
            bars=_bars(seen),
            tables=[
                *(
                    table_of_faults(f"{part}, the worst of {rounds} rounds", found)
                    for part, found in seen.items()
                ),
                *_beside_the_paper(seen),
                table_of_errors(trials.values()),
                table_of_trials(trials.values()),
            ],
            etcd_server=testbed.etcd.binary.version,
        )


def _measure(
    testbed: EtcdTestbed,
    contender: Contender,
    part: Part,
    number: int,
    seconds: float,
    trials: Trials,
) -> Aftermath:
    etcd = testbed.etcd
    leader = etcd.leader()
    slice_seconds = ONSET + (MOVES * BETWEEN_MOVES + 1.0 if part.moves else seconds)
    load = testbed.load(
        slice_seconds, f"{part.name} {number}", workers=part.workers, timeout=part.timeout
    )
    disturbance = (
        Disturbance(etcd, ONSET, lambda: _move(testbed))
        if part.moves
        else Disturbance(etcd, ONSET, leader.kill, leader)
    )
    with testbed.driving(contender, testbed.place(configured=leader)) as driver:
        driver.run(testbed.warm_up(number, seconds))
        try:
            measured, found = disturbance.run(driver, load)
        finally:
            if not leader.is_running:
                leader.restart()
    etcd.wait_until_ready()
    trials.add(measured)
    return found


def _move(testbed: EtcdTestbed) -> None:
    """Hand leadership over, from one to the next, each time to another member."""
    for _ in range(MOVES):
        testbed.etcd.move_leader(testbed.etcd.followers[0])
        time.sleep(BETWEEN_MOVES)


def _bars(seen: dict[str, dict[str, list[Aftermath]]]) -> list[Bar]:
    bars = []
    for part in PARTS:
        ours = seen[part.name].get(OURS, [])
        if not ours:
            continue
        errors = max(one.read_errors + one.write_errors for one in ours)
        bars.append(bar(f"errors, {part.name}, {OURS}", errors, "<=", 0 if part.moves else ERRORS))
        if not part.moves:
            recovered = max(max(one.last_error_since, one.writes_resumed) for one in ours)
            bars.append(
                bar(
                    f"seconds from new leader to recovery, {part.name}, {OURS}",
                    recovered,
                    "<=",
                    RECOVERED,
                )
            )
    return bars


def _beside_the_paper(seen: dict[str, dict[str, list[Aftermath]]]) -> list[TextTable]:
    ours = seen[PARTS[0].name].get(OURS, [])
    if not ours:
        return []
    recovered = max((one.elected or 0.0) + one.writes_resumed for one in ours)
    errors = [one.read_errors + one.write_errors for one in ours]
    return [
        {
            "title": "beside the paper's figures (separate machines, 128 workers)",
            "rows": [
                ["hybrid, leader killed", "here", "the paper"],
                ["errors", " and ".join(map(str, errors)), "18 to 23"],
                ["seconds from kill to writes", f"{recovered:.1f}", "2 to 3"],
            ],
        }
    ]
