"""Every scenario of ZooKeeper runs to its end, short, and its figures are plausible."""

import pytest

from bench.record import ContenderResult
from bench.scenario import Outcome, Settings, Steps
from bench.scenarios import zookeeper_degraded, zookeeper_paused, zookeeper_steady
from bench.zookeeper.contenders import LIMIT, OURS, ROUND_ROBIN, STICKY, STOCK, Contender

pytestmark = pytest.mark.integration

HYBRID = Contender(OURS)
SHORT = Settings(seconds=0.8, rounds=1, workers=4)


def by_name(outcome: Outcome) -> dict[str, ContenderResult]:
    for result in outcome.contenders:
        assert result["errors"] == 0, result["name"]
        assert result["operations"] > 30, result["name"]
    return {result["name"]: result for result in outcome.contenders}


def test_in_a_steady_ensemble_reads_are_spread_and_a_session_of_kazoos_stays_where_it_is() -> None:
    with Steps() as steps:
        outcome = zookeeper_steady.run(
            SHORT, steps, [HYBRID, Contender(ROUND_ROBIN), STICKY, LIMIT]
        )
    found = by_name(outcome)
    leader = str(outcome.parameters["leader"])
    assert not outcome.parameters["leader_moved"]
    for name in ("hybrid", "limit"):
        shares = found[name]["share"]
        assert len(shares) == 3
        assert max(shares, key=lambda server: shares[server]) == leader, name
        assert min(shares.values()) > 0.1, name
    assert max(found["sticky"]["share"].values()) > 0.9
    assert found["sticky"]["share"][leader] < 0.1
    assert len(outcome.bars) == 4


def test_a_slow_server_is_a_burden_to_who_sticks_to_it() -> None:
    with Steps() as steps:
        outcome = zookeeper_degraded.run(SHORT, steps, [STOCK, HYBRID, LIMIT])
    found = by_name(outcome)
    slow = str(outcome.parameters["degraded_endpoint"])
    assert found["stock_kazoo"]["share"][slow] > 0.9
    assert found["hybrid"]["share"][slow] < 0.6  # a short slice, with the time to find it out
    assert found["limit"]["share"][slow] < 0.1
    assert found["stock_kazoo"]["read"]["p50_ms"] > 2 * found["limit"]["read"]["p50_ms"]
    assert [table["title"].split()[0] for table in outcome.tables] == ["mean", "share", "beside"]


def test_a_paused_leader_does_not_take_our_session_along() -> None:
    settings = Settings(seconds=3.0, rounds=1)
    with Steps() as steps:
        outcome = zookeeper_paused.run(settings, steps, [STOCK, HYBRID], ["paused leader"])
    found = {result["name"]: result for result in outcome.contenders}
    # What is asked of a frozen server is not answered before it wakes up.
    assert found["stock_kazoo, paused leader"]["read"]["max_ms"] > 2000
    (title, stock, hybrid) = outcome.tables[0]["rows"]
    assert title[-2:] == ["same session", "ephemeral alive"]
    assert stock[0] == "stock_kazoo"
    assert hybrid[-2:] == ["1 of 1", "1 of 1"]
    lost = outcome.bars[2]
    assert lost["name"] == "sessions or ephemerals lost, paused leader, hybrid"
    assert lost["holds"]


def test_a_killed_server_is_back_for_the_next_contender() -> None:
    settings = Settings(seconds=1.0, rounds=1)
    with Steps() as steps:
        outcome = zookeeper_paused.run(
            settings, steps, [Contender(ROUND_ROBIN), HYBRID], ["killed follower"]
        )
    for row in outcome.tables[0]["rows"][1:]:
        assert row[-2:] == ["1 of 1", "1 of 1"]
        assert row[2] != "never"
