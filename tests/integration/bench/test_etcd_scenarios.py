"""Every scenario of etcd runs to its end, short, and its figures are plausible."""

import pytest

from bench.etcd.contenders import GRPC, LIMIT, ONE, Contender
from bench.record import ContenderResult
from bench.scenario import Outcome, Settings, Steps
from bench.scenarios import etcd_degraded, etcd_steady

pytestmark = pytest.mark.integration

HYBRID = Contender("hybrid")
SHORT = Settings(mode="sync", seconds=0.8, rounds=1, workers=8)


def by_name(outcome: Outcome) -> dict[str, ContenderResult]:
    return {result["name"]: result for result in outcome.contenders}


def test_in_a_steady_cluster_reads_are_spread_and_writes_go_to_the_leader() -> None:
    with Steps() as steps:
        outcome = etcd_steady.run(SHORT, steps, [HYBRID, GRPC, ONE, LIMIT])
    found = by_name(outcome)
    leader = str(outcome.parameters["leader"])
    assert not outcome.parameters["leader_moved"]
    for name, result in found.items():
        assert result["errors"] == 0, name
        assert result["operations"] > 50, name
    for name in ("hybrid", "limit"):
        assert found[name]["write_share"] == {leader: 1.0}
    for name in ("hybrid", "limit", "grpc_round_robin"):
        assert min(found[name]["share"].values()) > 0.15, name
        assert len(found[name]["share"]) == 3
    assert 0.2 < found["grpc_round_robin"]["write_share"].get(leader, 0.0) < 0.5
    assert len(found["one_endpoint"]["share"]) == 1


def test_a_slow_follower_keeps_its_share_where_nobody_looks() -> None:
    with Steps() as steps:
        outcome = etcd_degraded.run(SHORT, steps, [Contender("round_robin"), LIMIT])
    found = by_name(outcome)
    slow = str(outcome.parameters["degraded_endpoint"])
    assert found["round_robin"]["share"][slow] > 0.2
    assert slow not in found["limit"]["share"]
    assert found["round_robin"]["errors"] == found["limit"]["errors"] == 0
    assert found["round_robin"]["read"]["p99_ms"] > 8
    assert outcome.bars == []
