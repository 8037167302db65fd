"""The soak of ``python -m bench redis-soak``, short: every fault there is, both clients at once."""

from __future__ import annotations

import sys
from typing import cast

import pytest

from bench.scenario import Settings, Steps
from bench.scenarios import redis_soak

KINDS = {
    *("replica paused", "primary paused", "shard paused", "replica killed"),
    *("failover", "slot moved", "delay"),
}


@pytest.mark.long
@pytest.mark.integration(limit=240)
def test_every_answer_is_right_and_every_error_the_stores_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """https://github.com/redis/redis-py/issues/3130, #3684: time-outs left clients unusable."""
    with Steps() as steps:
        outcome = redis_soak.run(Settings(seed=1, seconds=30.0), steps, interval=2.5)
    with capsys.disabled():
        for table in outcome.tables:
            sys.stdout.write("\n" + "\n".join("  ".join(row) for row in table["rows"]))
    assert outcome.parameters["problems"] == []
    assert [bar for bar in outcome.bars if not bar["holds"]] == []
    faults = cast("dict[str, int]", outcome.parameters["faults"])
    assert faults.keys() == KINDS
    outcomes = cast("dict[str, dict[str, int]]", outcome.parameters["outcomes"])
    for contender in outcome.contenders:
        assert outcomes[contender["name"]]["answered"] > 1000
        assert contender["by_method"].keys() == {"get", "set", "reads", "mixed", "mget"}
