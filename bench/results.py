"""Turn the committed runs into the tables of README and docs: no number is typed by hand.

``python -m bench.results RUN.json ...`` files runs under ``bench/results/`` (without the curves,
which only the report needs) and renews the tables; without arguments it only renews them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import cast

from bench.closed_testbed import CLIENT_RTT, PEER_RTT
from bench.record import ContenderResult, RunResult
from bench.report import markdown

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "bench" / "results"
TEXTS = (ROOT / "README.md", ROOT / "docs" / "redis-py-design-note.md")
"""What has a table inside it."""
PAGE = ROOT / "docs" / "results.md"
BEGIN, END = "<!-- results: begin (make results) -->", "<!-- results: end -->"
HEADLINE = ("redis-degraded-sync", "redis-degraded-asyncio")
SERVERS = {"redis_server": "Redis", "etcd_server": "etcd", "zookeeper_server": "ZooKeeper"}
VARIED = ("members", "mix")
"""Parameters that name a run, and the option of the same name."""
ROUND_TRIPS = {"client_rtt_ms": CLIENT_RTT * 1e3, "peer_rtt_ms": PEER_RTT * 1e3}
"""Those that do so only if they are not what they are unless told."""
BULKY = ("curve", "write_curve", "timeline")


def file(run: RunResult) -> Path:
    """Store one run, named by scenario, mode, number of degraded endpoints, and what is varied."""
    count = len(str(run["parameters"].get("degraded_endpoint", "")).split(", "))
    suffix = f"-{count}-slow" if count > 1 else ""
    variant = "".join(
        f"-{value}" if name in VARIED else f"-{name}-{value}"
        for name, value in _variant(run).items()
    ).replace("/", "-")
    path = FOLDER / f"{run['scenario']}{suffix}{variant}-{run['mode']}.json"
    slim = json.loads(json.dumps(run))
    for contender in slim["contenders"]:
        for key in BULKY:
            contender.pop(key, None)
    FOLDER.mkdir(exist_ok=True)
    path.write_text(json.dumps(slim, indent=1) + "\n", encoding="utf-8")
    return path


def load(path: Path) -> RunResult:
    """Read a stored run."""
    run = json.loads(path.read_text(encoding="utf-8"))
    for contender in run["contenders"]:
        for key in BULKY:
            contender.setdefault(key, [])
    return cast("RunResult", run)


def headline(runs: Sequence[RunResult]) -> str:
    """Return the README's table: p99 and share of the slow endpoint, a column pair per mode."""
    modes = [run["mode"] for run in runs]
    head = ["strategy", *(f"p50 ms, {m}" for m in modes), *(f"p99 ms, {m}" for m in modes)]
    head += [f"slow share, {m}" for m in modes]
    rows = [head, ["---", *["---:"] * (len(head) - 1)]]
    for name in [c["name"] for c in runs[0]["contenders"]]:
        same = [_named(run, name) for run in runs]
        rows.append(
            [
                f"`{name}`",
                *(f"{c['read']['p50_ms']:.2f}" for c in same),
                *(f"{c['read']['p99_ms']:.2f}" for c in same),
                *(f"{c['degraded_share']:.2%}" for c in same),
            ]
        )
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return f"{table}\n\n{_conditions(runs[0])}\n"


def page(paths: Iterable[Path]) -> str:
    """Return the whole of docs/results.md."""
    parts = [
        "# Results\n\nMade by `make results` from the runs in `bench/results/`; how they are "
        "measured is told in [bench/README.md](../bench/README.md).\n"
    ]
    for path in paths:
        run = load(path)
        options = "".join(f" --{name} {value}" for name, value in _variant(run).items())
        command = f"python -m bench {run['scenario']} --mode {run['mode']}{options}"
        parts.append(
            f"## {path.stem}\n\n{run['question']}\n\n`{command}`. {_conditions(run)}\n\n"
            f"{markdown(run)}"
        )
    return "\n".join(parts)


def renewed(text: str) -> str:
    """Return a text with the table of the stored runs."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    table = headline([load(FOLDER / f"{name}.json") for name in HEADLINE])
    return f"{before}{BEGIN}\n{table}{END}{after}"


def _variant(run: RunResult) -> dict[str, object]:
    """Return the options by which runs of one scenario are told apart, if it has any."""
    parameters = run["parameters"]
    varied = {name: parameters[name] for name in VARIED if name in parameters}
    given = {name: parameters.get(name, usual) for name, usual in ROUND_TRIPS.items()}
    return varied | {
        name.replace("_", "-"): f"{value:g}"
        for name, value in given.items()
        if value != ROUND_TRIPS[name]
    }


def _named(run: RunResult, name: str) -> ContenderResult:
    return next(c for c in run["contenders"] if c["name"] == name)


def _conditions(run: RunResult) -> str:
    environment, parameters = run["environment"], run["parameters"]
    facts = [
        f"{parameters['rounds']} rounds" if "rounds" in parameters else "",
        f"{parameters['seconds_per_slice']:g} s each" if "seconds_per_slice" in parameters else "",
        f"seed {run['seed']}",
        *(f"{name} {environment[key]}" for key, name in SERVERS.items() if key in environment),
        f"Python {environment['python']}",
        f"{environment['cpus']} CPUs",
    ]
    return "Measured with " + ", ".join(fact for fact in facts if fact) + "."


def main(arguments: Sequence[str]) -> None:
    """File the runs named and renew the tables."""
    for name in arguments:
        stored = file(json.loads(Path(name).read_text(encoding="utf-8")))
        print(f"filed {stored.name}")
    for text in TEXTS:
        text.write_text(renewed(text.read_text(encoding="utf-8")), encoding="utf-8")
    PAGE.write_text(page(sorted(FOLDER.glob("*.json"))), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
