"""The MongoDB drivers' published vectors, read in place.

Their licence (CC BY-NC-SA) keeps them out of this repository. They are looked for in
``$LB_STRATEGIES_VECTORS``, else in ``../shared/vectors`` beside the repository.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lb_strategies import BalancerOptions, LoadBalancer, LoadBalancingStrategy
from lb_strategies.estimators import SampleEwma

from .scripted import answer

ROOT = Path(
    os.environ.get("LB_STRATEGIES_VECTORS")
    or Path(__file__).parents[2].parent / "shared" / "vectors"
)
MISSING = f"no published vectors in {ROOT}; set LB_STRATEGIES_VECTORS to their folder"


def vectors(folder: str) -> list[Any]:
    """Return one parameter set per JSON file, or a single one that is skipped."""
    files = sorted((ROOT / folder).glob("*.json"))
    if not files:
        return [pytest.param(None, id="absent", marks=pytest.mark.skip(reason=MISSING))]
    return [pytest.param(path, id=path.stem) for path in files]


@pytest.mark.parametrize("path", vectors("mongodb_in_window"))
def test_two_choices_have_the_published_frequencies(path: Path) -> None:
    """Everyone equally fast, so in-flight decides; choosing counts nothing, nobody is settled.

    The published tolerance is used, 0.05: of 2,000 choices that is over four standard errors
    (0.5 / sqrt(2000) = 0.011), and the seed is fixed.
    """
    case = json.loads(path.read_text())
    only_two = BalancerOptions(scan_limit=0)
    target = LoadBalancer(
        LoadBalancingStrategy.LATENCY_BASED, options=only_two, rng=random.Random(1)
    )
    rtts = {s["address"]: s["avg_rtt_ms"] / 1000 for s in case["topology_description"]["servers"]}
    now = 0.0
    for address, rtt in rtts.items():
        now = answer(target, [address], now=now, rtt=rtt)
    for state in case["mocked_topology_state"]:
        for _ in range(state["operation_count"]):
            target.begin(state["address"], now=now)
    iterations = case["iterations"]
    counts = Counter(target.choose(tuple(rtts), now=now) for _ in range(iterations))
    for address, expected in case["outcome"]["expected_frequencies"].items():
        tolerance = case["outcome"]["tolerance"]
        assert counts[address] / iterations == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize("path", vectors("mongodb_rtt"))
def test_the_plain_average_has_the_published_values(path: Path) -> None:
    """Weight 0.2, in milliseconds."""
    case = json.loads(path.read_text())
    before = None if case["avg_rtt_ms"] == "NULL" else float(case["avg_rtt_ms"])
    average = SampleEwma(0.2, before)
    assert average.add(float(case["new_rtt_ms"])) == pytest.approx(case["new_avg_rtt"])
