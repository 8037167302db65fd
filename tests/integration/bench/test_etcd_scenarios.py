"""Every scenario of etcd runs to its end, short, and its figures are plausible."""

import dataclasses
import os
import sys
import time
from pathlib import Path

import pytest

from bench.contenders import Mode
from bench.etcd.contenders import GRPC, LIMIT, ONE, Contender
from bench.record import ContenderResult
from bench.scenario import Outcome, Settings, Steps
from bench.scenarios import (
    etcd_degraded,
    etcd_election,
    etcd_overhead,
    etcd_paused,
    etcd_read_sizes,
    etcd_steady,
    etcd_sweep,
)
from bench.servers.process import Process
from bench.servers.quota import CpuQuota, QuotaError

pytestmark = pytest.mark.integration

HYBRID = Contender("hybrid")
WORKERS = 8
SHORT = Settings(mode="asyncio", seconds=0.6, rounds=1, workers=WORKERS)


def by_name(outcome: Outcome) -> dict[str, ContenderResult]:
    return {result["name"]: result for result in outcome.contenders}


@pytest.mark.alone
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


def test_a_paused_member_costs_us_little_and_a_client_of_it_everything() -> None:
    settings = dataclasses.replace(SHORT, seconds=1.5)
    with Steps() as steps:
        outcome = etcd_paused.run(settings, steps, [HYBRID, ONE])
    found = by_name(outcome)
    assert found["hybrid, paused follower"]["write"]["count"] > 100
    assert outcome.bars[0]["name"].startswith("write errors, paused follower")
    assert outcome.bars[0]["measured"] == 0
    for part in ("follower", "leader"):
        stuck = found[f"one_endpoint, paused {part}"]
        assert set(stuck["errors_by_type"]) == {"DEADLINE_EXCEEDED"}
        assert stuck["errors"] >= WORKERS


def test_elections_are_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_election, "MOVES", 1)
    settings = dataclasses.replace(SHORT, seconds=2.0)
    with Steps() as steps:
        outcome = etcd_election.run(settings, steps, [HYBRID])
    found = by_name(outcome)
    moved = found["hybrid, move"]
    assert moved["errors"] == 0
    # Of a kill only the writes that were on their way; their number is that of the workers at most.
    assert found["hybrid, kill"]["errors"] <= WORKERS
    assert len(moved["write_share"]) > 1
    assert [bar["name"].partition(",")[0] for bar in outcome.bars] == [
        *("errors", "seconds from new leader to recovery") * 2,
        "errors",
    ]


def test_reads_of_all_sizes_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_read_sizes, "SIZES", (1, 500))
    settings = dataclasses.replace(SHORT, seconds=0.4)
    with Steps() as steps:
        outcome = etcd_read_sizes.run(settings, steps, [etcd_read_sizes.LEADER, HYBRID])
    found = by_name(outcome)
    assert all(result["errors"] == 0 for result in found.values())
    assert len(found["leader_only, 500 keys"]["share"]) == 1
    assert len(found["hybrid, 1 keys"]["share"]) > 1  # a member may seem sick for a moment
    assert [len(line["points"]) for line in outcome.plots[0]["lines"]] == [2, 2]
    assert len(outcome.bars) == 2


@pytest.mark.parametrize("mode", ["sync", "asyncio"])
def test_the_cost_of_the_layer_is_measured(mode: Mode) -> None:
    settings = dataclasses.replace(SHORT, mode=mode, seconds=0.2)
    with Steps() as steps:
        outcome = etcd_overhead.run(settings, steps)
    found = by_name(outcome)
    assert all(result["errors"] == 0 for result in found.values())
    assert all(result["operations"] > 20 for result in found.values())
    assert len(found) == 6
    assert [(bar["relation"], bar["bar"]) for bar in outcome.bars] == [(">=", 0.97)] * 2
    assert len(outcome.tables[0]["rows"]) == 4


def test_a_sweep_is_plotted() -> None:
    settings = dataclasses.replace(SHORT, seconds=0.4)
    with Steps() as steps:
        outcome = etcd_sweep.run(settings, steps)
    found = by_name(outcome)
    assert {len(result["share"]) for result in found.values()} == {5}
    assert [plot["title"] for plot in outcome.plots] == [
        "Throughput by workers",
        "Write p50 by workers",
        "Read p50 by workers",
    ]


def test_a_quota_bounds_the_time_of_a_process(tmp_path: Path) -> None:
    spinning = Process([sys.executable, "-c", "while True: pass"], log=tmp_path / "log")
    try:
        with CpuQuota("lb-test", 0.2) as quota:
            quota.hold([spinning.pid])
            used, began_at = cpu_time(spinning.pid), time.monotonic()
            time.sleep(1.0)
            share = (cpu_time(spinning.pid) - used) / (time.monotonic() - began_at)
    except QuotaError as error:
        pytest.skip(f"{error}: needs root and control groups, as etcd-read-sizes does")
    finally:
        spinning.kill()
    assert share < 0.3


def cpu_time(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
