"""How long is kazoo's user without ZooKeeper when a server freezes, or dies?

Three servers behind links with a round trip, and twenty operations per second, four of five of
them reads, each asked in its time whether others were answered or not. Then the leader is stopped
by SIGSTOP: its connections stay open and it never answers. In parts of their own it is killed, and
a follower takes its place. The sessions of `stock_kazoo` and `round_robin` are on the victim.

Expected: kazoo's own client takes every request for a sign of life of its own, so while it is busy
it never notices a frozen server; its session expires, and with it its ephemeral nodes, of which it
learns when the server wakes up. With `hybrid`, whose session is at the leader, both survive: at
most five operations fail, and it serves again within 2.5 s, the election of another leader
included, or within a second of a kill. Of a follower's failure it hardly notices; `round_robin`
shows what its session would suffer there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bench.record import Bar, bar
from bench.scenario import Outcome, Settings, Steps
from bench.servers.zookeeper import ZooKeeperServer
from bench.trials import Trials, results, table_of_errors
from bench.zookeeper.contenders import OURS, ROUND_ROBIN, STOCK, Contender, open_client
from bench.zookeeper.faults import Incident, Noticed, arrivals, table_of_incidents
from bench.zookeeper.testbed import ZooKeeperTestbed

MODES = ("sync",)
CONTENDERS = [STOCK, Contender(ROUND_ROBIN), Contender(OURS)]
ROUNDS = 3
SECONDS = 6.0
"""From the fault until it is undone."""
ONSET = 1.5
"""Seconds from the start of a slice to the fault."""
RATE = 20.0
"""Operations per second."""
SYNC_LIMIT = 3
"""Half seconds of silence after which the followers elect another leader."""

PARTS = ("paused leader", "paused follower", "killed leader", "killed follower")
SERVING = {"paused": 2.5, "killed": 1.0}
FAILED = 5


def run(
    settings: Settings,
    steps: Steps,
    contenders: Sequence[Contender] = CONTENDERS,
    parts: Sequence[str] = PARTS,
) -> Outcome:
    """Measure; see the module's docstring."""
    rounds, seconds = settings.rounds or ROUNDS, settings.seconds or SECONDS
    rate = settings.arrivals or RATE
    trials = {
        (part, one.name): Trials(f"{one.name}, {part}") for part in parts for one in contenders
    }
    seen: dict[str, dict[str, list[Noticed]]] = {
        part: {one.name: [] for one in contenders} for part in parts
    }
    steps.expect(rounds * len(parts) * len(contenders))
    with ZooKeeperTestbed(settings, sync_limit=SYNC_LIMIT) as testbed:
        for number in range(1, rounds + 1):
            for part in parts:
                for contender in testbed.shuffled(contenders, number):
                    name = contender.name
                    steps.begin(f"round {number} of {rounds}, {part}: {name}")
                    measured = _measure(
                        testbed, contender, part, seconds, rate, trials[part, name], number
                    )
                    seen[part][name].append(measured)
        steps.finish()
        return Outcome(
            parameters=testbed.parameters(
                arrivals_per_s=rate,
                onset_s=ONSET,
                seconds_per_slice=ONSET + seconds,
                rounds=rounds,
                leader_given_up_after_s=SYNC_LIMIT * 0.5,
            ),
            contenders=results(trials),
            bars=_bars(seen),
            tables=[
                *(
                    table_of_incidents(f"{part}, the worst of {rounds} rounds", found)
                    for part, found in seen.items()
                ),
                table_of_errors(trials.values()),
            ],
            zookeeper_server=testbed.version,
        )


def _measure(
    testbed: ZooKeeperTestbed,
    contender: Contender,
    part: str,
    seconds: float,
    rate: float,
    trials: Trials,
    number: int,
) -> Noticed:
    zookeeper = testbed.zookeeper
    victim = zookeeper.leader() if part.endswith("leader") else zookeeper.followers[-1]
    load = arrivals(
        rate, ONSET + seconds, testbed.read_part, f"{testbed.settings.seed} {part} {number}"
    )
    incident = Incident(zookeeper, victim, _fault(victim, part), after=ONSET, seconds=seconds)
    client = open_client(contender, testbed.place(victim))
    measured, noticed = incident.run(client, load)
    zookeeper.wait_until_ready()
    trials.add(measured, {})
    return noticed


def _fault(victim: ZooKeeperServer, part: str) -> Callable[[], None]:
    return victim.pause if part.startswith("paused") else victim.kill


def _bars(seen: Mapping[str, Mapping[str, Sequence[Noticed]]]) -> list[Bar]:
    bars = []
    for part, found in seen.items():
        if OURS in found:
            ours = found[OURS]
            lost = sum(not (one.keeps_session and one.keeps_ephemeral) for one in ours)
            serving = max(one.serving for one in ours)
            bars += [
                bar(
                    f"serving again after s, {part}, {OURS}",
                    serving,
                    "<=",
                    SERVING[part.split()[0]],
                ),
                bar(f"failed, {part}, {OURS}", max(one.failed for one in ours), "<=", FAILED),
                bar(f"sessions or ephemerals lost, {part}, {OURS}", lost, "<=", 0),
            ]
    return bars
