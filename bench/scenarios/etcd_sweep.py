"""Does the gap between round robin and our routing widen with the load on etcd?

Five members behind links with a round trip; closed loops of 128, 256 and 512 workers (or of
``--workers`` alone), 80 % linearizable reads.

Expected, where members have machines of their own: it widens, for forwarded writes load two members
each. Where all share one machine with the client, the processor is what saturates: the report tells
how much of it the client took.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.closed_testbed import WARM_UP
from bench.etcd.contenders import OURS, STOCK, Contender
from bench.etcd.testbed import EtcdTestbed
from bench.record import Plot, TextTable
from bench.scenario import Outcome, Settings, Steps
from bench.trials import FIGURES, Trials, paired, results, table_of_trials

MODE = "asyncio"
MEMBERS = 5
WORKERS = (128, 256, 512)
ROUNDS = 3
SECONDS = 5.0
CONTENDERS = [Contender(STOCK), Contender(OURS)]


def run(settings: Settings, steps: Steps, contenders: Sequence[Contender] = CONTENDERS) -> Outcome:
    """Measure; see the module's docstring."""
    rounds, seconds = settings.rounds or ROUNDS, settings.seconds or SECONDS
    sizes = (settings.workers,) if settings.workers else WORKERS
    trials = {
        (size, one.name): Trials(f"{one.name}, {size}") for size in sizes for one in contenders
    }
    steps.expect(rounds * len(trials))
    with EtcdTestbed(settings, members=MEMBERS) as testbed:
        for number in range(1, rounds + 1):
            for size in sizes:
                for contender in testbed.shuffled(contenders, number):
                    steps.begin(f"round {number} of {rounds}, {size} workers: {contender.name}")
                    with testbed.driving(contender) as driver:
                        driver.run(testbed.warm_up(number, seconds))
                        load = testbed.load(seconds, f"round {number}", workers=size)
                        trials[size, contender.name].add(driver.run(load))
        steps.finish()
        parameters = testbed.parameters(
            rounds=rounds,
            seconds_per_slice=seconds,
            warm_up_s=WARM_UP,
            leader=testbed.etcd.leader().name,
        )
        return Outcome(
            parameters={**parameters, "workers": ", ".join(map(str, sizes))},
            contenders=results(trials),
            tables=[table_of_trials(trials.values()), *_gap(trials)],
            plots=[
                _plot(trials, title, figure)
                for title, figure in (
                    ("Throughput by workers", "throughput"),
                    ("Write p50 by workers", "write_p50"),
                    ("Read p50 by workers", "read_p50"),
                )
            ],
            etcd_server=testbed.etcd.binary.version,
        )


def _gap(trials: Mapping[tuple[int, str], Trials]) -> list[TextTable]:
    sizes = dict.fromkeys(size for size, _ in trials)
    if any((size, name) not in trials for size in sizes for name in (OURS, STOCK)):
        return []
    rows = [["hybrid against round robin", "write p50", "read p50", "throughput"]]
    for size in sizes:
        ours, stock = trials[size, OURS], trials[size, STOCK]
        ratios = [paired(ours, stock, one) for one in ("write_p50", "read_p50", "throughput")]
        rows.append([f"{size} workers", *(f"{(ratio - 1) * 100:+.1f} %" for ratio in ratios)])
    return [{"title": "the gap (the paper's widens with the load)", "rows": rows}]


def _plot(trials: Mapping[tuple[int, str], Trials], title: str, figure: str) -> Plot:
    unit, scale = FIGURES[figure]
    names = dict.fromkeys(name for _, name in trials)
    return {
        "title": title,
        "x": "workers",
        "y": unit,
        "lines": [
            {
                "name": name,
                "points": [
                    (float(size), round(one.mean(figure) * scale, 3))
                    for (size, of), one in trials.items()
                    if of == name
                ],
            }
            for name in names
        ],
    }
