"""Runs redis-py's own cluster tests with each of our modes: ``python -m tests.upstream``.

The tests are those of the installed redis-py: of the checkout that ``--redis-py`` or the
environment variable ``REDIS_PY`` names, else of its source distribution. They run on a cluster of
3 + 3 servers that listens on the ports of 127.0.0.1 that the suite demands.

With our classes in the place of redis-py's and no strategy the same tests must pass as with
redis-py alone. With a strategy forced on every client that names none, a test may fail only if
`ALLOWED` says why. A test that fails is run again, in every mode, so that a slow machine or a
race is not taken for a defect; what passes then is counted and named as unsteady.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.servers.binaries import find_redis_server
from bench.servers.process import terminating
from bench.servers.redis import RedisClusterServers

from .allowed import ALLOWED
from .substitute import MODES

PORTS = range(16379, 16385)
FILES = ("tests/test_cluster.py", "tests/test_asyncio/test_cluster.py")
MARKERS = "not onlynoncluster and not redismod and not multidb_integration and not ssl"
TLS = "tests/test_asyncio/test_cluster.py::TestSSL"
ATTEMPTS = 3
LIMIT = 1200
"""Seconds that one run of pytest may take; none takes half of it."""


@dataclass
class Result:
    """How one mode ended.

    Attributes:
        outcomes: "passed", "failed" or "skipped", by test.
        unsteady: what failed and then passed.
        seconds: how long it took.
    """

    outcomes: dict[str, str] = field(default_factory=dict)
    unsteady: set[str] = field(default_factory=set)
    seconds: float = 0.0

    def those(self, outcome: str, file: str = "") -> set[str]:
        """Return the tests, of one file if given, that ended with `outcome`."""
        return {t for t, o in self.outcomes.items() if o == outcome and t.startswith(file)}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.upstream")
    parser.add_argument("--redis-py", type=Path, default=os.environ.get("REDIS_PY") or None)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=tuple(MODES), metavar="MODE")
    parser.add_argument("--tests", nargs="+", default=FILES, help="files or tests of the suite")
    arguments = parser.parse_args(argv)
    console = Console(width=110)
    with terminating(), tempfile.TemporaryDirectory(prefix="lb-upstream-") as directory:
        suite = Path(directory)
        fetch_suite(suite, arguments.redis_py)
        config = {"enable-module-command": "yes"}
        newest = find_redis_server(prefer_wheel=True)
        results: dict[str, Result] = {}
        for mode in arguments.modes:
            with RedisClusterServers(
                primaries=3, replicas=1, binary=newest, config=config, ports=PORTS
            ):
                results[mode] = run(suite, mode, arguments.tests)
            console.print(f"{mode}: {len(results[mode].those('passed'))} passed")
    print_table(results, console)
    return judge(results, console)


def fetch_suite(suite: Path, checkout: Path | None) -> None:
    """Put the tests of the installed redis-py into the folder `suite`, and nothing else of it.

    Args:
        suite: an empty folder.
        checkout: where they are; None to download them.
    """
    with tempfile.TemporaryDirectory(prefix="lb-redis-py-") as directory:
        if checkout is None:
            checkout = download(Path(directory))
        shutil.copytree(checkout / "tests", suite / "tests")
        shutil.copy(checkout / "pyproject.toml", suite)


def download(directory: Path) -> Path:
    """Return where in `directory` the sources of the installed redis-py are now."""
    release = f"redis=={version('redis')}"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--no-binary=:all:", "--dest", directory, release], check=True)
    [archive] = directory.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(directory, filter="data")
    [sources] = (path for path in directory.iterdir() if path.is_dir())
    if not (sources / "tests").is_dir():
        sources = directory / "clone"
        git = ["git", "clone", "--quiet", "--depth=1", f"--branch=v{version('redis')}"]
        subprocess.run([*git, "https://github.com/redis/redis-py", sources], check=True)
    return sources


def run(suite: Path, mode: str, tests: Iterable[str]) -> Result:
    """Run `tests` in one mode, and those that fail again."""
    result = Result()
    started = time.monotonic()
    again: Iterable[str] = tests
    for attempt in range(ATTEMPTS):
        outcomes = run_pytest(suite, mode, again)
        if attempt:
            result.unsteady |= {test for test in again if outcomes.get(test) == "passed"}
        result.outcomes |= outcomes
        again = sorted(result.those("failed"))
        if not again:
            break
    result.seconds = time.monotonic() - started
    return result


def run_pytest(suite: Path, mode: str, tests: Iterable[str]) -> dict[str, str]:
    """Run `tests` once; return how each ended."""
    outcomes = suite / "outcomes.json"
    outcomes.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "LB_UPSTREAM_MODE": mode,
        "LB_UPSTREAM_OUTCOMES": str(outcomes),
        "PYTHONPATH": str(Path(__file__).parent),
    }
    url = f"redis://localhost:{PORTS[0]}/0"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--tb=short",
        "--no-header",
        "-p",
        "substitute",
    ]
    command += ["-p", "no:cacheprovider", "-p", "no:benchmark", "-m", MARKERS, "--deselect"]
    command += ["tests/test_asyncio/test_cluster.py::TestSSL", f"--redis-url={url}", *tests]
    with (suite / f"{mode}.log").open("ab") as log:
        done = subprocess.run(
            command, cwd=suite, env=environment, stdout=log, stderr=log, timeout=LIMIT, check=False
        )
    # A failing test is a result, not an error of this program; a run that broke off is one.
    if done.returncode not in (0, 1) or not outcomes.exists():
        raise RuntimeError((suite / f"{mode}.log").read_text(errors="replace")[-4000:])
    ended: dict[str, str] = json.loads(outcomes.read_text(encoding="utf-8"))
    return ended


def print_table(results: dict[str, Result], console: Console) -> None:
    """Print how many tests of each file passed in each mode."""
    table = Table(title=f"redis-py {version('redis')}, its own cluster tests", title_justify="left")
    for column in ("mode", "file", "passed", "failed", "skipped", "unsteady", "s"):
        table.add_column(column, justify="left" if column in ("mode", "file") else "right")
    for mode, result in results.items():
        for file in FILES:
            counts = [len(result.those(o, file)) for o in ("passed", "failed", "skipped")]
            unsteady = sum(test.startswith(file) for test in result.unsteady)
            table.add_row(mode, file, *map(str, counts), str(unsteady), f"{result.seconds:.0f}")
    console.print(table)
    for mode, result in results.items():
        for test in sorted(result.unsteady):
            console.print(f"unsteady in {mode}: {test}", soft_wrap=True, markup=False)


def judge(results: dict[str, Result], console: Console) -> int:
    """Print every difference from redis-py alone; return 1 if one has no explanation.

    Where redis-py alone was not run, everything should have passed.
    """
    stock = results.get("stock", Result()).outcomes
    unexplained = 0
    for mode, result in results.items():
        for test in sorted(stock or result.those("failed")):
            before = stock.get(test, "passed")
            after = result.outcomes.get(test, "not run")
            if before == after:
                continue
            reason = explanation(mode, test)
            unexplained += not reason
            text = f"{mode}: {test} {before} -> {after}: {reason or 'UNEXPLAINED'}"
            console.print(text, soft_wrap=True, markup=False)
    return 1 if unexplained else 0


def explanation(mode: str, test: str) -> str:
    """Return why a test may fail in a mode; empty if it may not."""
    return ALLOWED.get(mode, {}).get(test.partition("[")[0], "")


if __name__ == "__main__":
    sys.exit(main())
