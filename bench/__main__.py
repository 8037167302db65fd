"""The command line: ``python -m bench SCENARIO``, ``python -m bench list``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bench.contenders import Mode
from bench.record import RunResult
from bench.report import markdown, print_tables, write_json, write_page
from bench.scenario import Settings, Steps, environment
from bench.scenarios import SCENARIOS
from bench.servers.process import terminating


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    console = Console()
    if arguments.scenario == "list":
        for scenario in SCENARIOS.values():
            console.print(f"[bold]{scenario.name:<18}[/] {scenario.question}")
        return 0
    if arguments.mode == "both" and not SCENARIOS[arguments.scenario].runs_both:
        parser.error(f"--mode both: {arguments.scenario} measures one kind of client at a time")
    if arguments.mode in ("sync", "asyncio"):
        known = SCENARIOS[arguments.scenario].modes
        if arguments.mode not in known:
            parser.error(f"--mode {arguments.mode}: {arguments.scenario} has {', '.join(known)}")
    try:
        with terminating():
            result = _run(arguments)
    except KeyboardInterrupt:
        console.print("interrupted; every server has been stopped")
        return 130
    report = arguments.report or _default_report(arguments.scenario)
    print_tables(result, console)
    if arguments.markdown:
        arguments.markdown.write_text(markdown(result), encoding="utf-8")
    if arguments.json:
        write_json(result, arguments.json)
        console.print(f"json:   {arguments.json}", soft_wrap=True)
    write_page(result, report)
    console.print(f"report: {report}", soft_wrap=True)
    all_hold = all(bar["holds"] for bar in result["bars"])
    return 1 if arguments.strict and not all_hold else 0


def _run(arguments: argparse.Namespace) -> RunResult:
    scenario = SCENARIOS[arguments.scenario]
    chosen: str = arguments.mode or ("both" if scenario.runs_both else scenario.mode)
    modes: tuple[Mode, ...] = ("sync", "asyncio")
    modes = tuple(mode for mode in modes if chosen in (mode, "both"))
    settings = Settings(
        seed=arguments.seed,
        mode=modes[0],
        modes=modes,
        seconds=arguments.seconds,
        rounds=arguments.rounds,
        arrivals=arguments.arrivals,
        degraded=arguments.degraded,
        peers=arguments.peers,
        members=arguments.members,
        read_part=arguments.mix,
        workers=arguments.workers,
        client_rtt=arguments.client_rtt_ms,
        peer_rtt=arguments.peer_rtt_ms,
    )
    with Steps() as steps:
        outcome = scenario.run(settings, steps)
    return {
        "scenario": scenario.name,
        "question": scenario.question,
        "mode": chosen,
        "seed": settings.seed,
        "environment": environment(outcome),
        "parameters": outcome.parameters,
        "contenders": outcome.contenders,
        "bars": outcome.bars,
        "tables": outcome.tables,
        "plots": outcome.plots,
    }


def _default_report(scenario: str) -> Path:
    return Path(tempfile.mkdtemp(prefix="lb-bench-")) / f"{scenario}.html"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure load balancing on real servers that this command starts and stops.",
    )
    parser.add_argument("scenario", choices=["list", *SCENARIOS], metavar="SCENARIO|list")
    parser.add_argument(
        "--mode",
        choices=["sync", "asyncio", "both"],
        help="default: sync; in redis-soak both, in etcd's asyncio",
    )
    parser.add_argument("--seed", type=int, default=1, help="decides arrivals, jitter and order")
    parser.add_argument("--seconds", type=_positive, help="length of one measured slice")
    parser.add_argument("--rounds", type=_count, help="slices of each contender")
    parser.add_argument("--arrivals", type=_positive, help="operations per second (open loop)")
    parser.add_argument("--degraded", type=int, choices=[1, 2], default=1, help="slow replicas")
    parser.add_argument(
        "--peers",
        action="store_true",
        help="add other libraries' clients where installed (redis-degraded, asyncio)",
    )
    cluster = parser.add_argument_group(
        "etcd and ZooKeeper", "A cluster with a leader, whose links all have a delay."
    )
    cluster.add_argument("--members", type=int, choices=[3, 5])
    cluster.add_argument("--mix", type=_mix, metavar="R/W", help="reads and writes: 80/20, 50/50")
    cluster.add_argument("--workers", type=_count, help="of the closed loop")
    cluster.add_argument("--client-rtt-ms", type=_milliseconds, help="default: 1")
    cluster.add_argument("--peer-rtt-ms", type=_milliseconds, help="default: 2")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers here")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables here")
    parser.add_argument("--report", type=Path, metavar="FILE.html", help="default: a new folder")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a bar is missed")
    return parser


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def _milliseconds(text: str) -> float:
    """Return seconds."""
    value = float(text)
    if not 0 <= value < 1000:
        raise argparse.ArgumentTypeError(f"{text} is not 0 or more, and below 1000")
    return value / 1000


def _mix(text: str) -> float:
    """Return the part that are reads."""
    reads, _, writes = (part.strip() for part in text.partition("/"))
    if not (reads.isdecimal() and writes.isdecimal() and int(reads) + int(writes) == 100):
        raise argparse.ArgumentTypeError(f"{text} is not like 80/20: two parts of a hundred")
    return int(reads) / 100


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return value


if __name__ == "__main__":
    sys.exit(main())
