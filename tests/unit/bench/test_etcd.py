import math
import random
from pathlib import Path

import pytest

from bench import results as bench_results
from bench.__main__ import main
from bench.closed_loop import Measured
from bench.etcd.faults import aftermath, table_of_faults
from bench.etcd.messages import PutRequest, RangeRequest, RangeResponse
from bench.etcd.workload import KEYS, VALUE_SIZE, mixed, ranges
from bench.load import Sample
from bench.record import RunResult
from bench.report import page
from bench.scenario import Outcome, environment
from bench.servers.quota import CpuQuota
from bench.trials import (
    Trials,
    paired,
    results,
    shares_in_windows,
    table_of_errors,
    table_of_shares,
    table_of_trials,
)
from bench.workload import Kind


def sample(
    at: float, ms: float, kind: Kind = "read", member: str = "m0", error: str | None = None
) -> Sample:
    return Sample(at, ms / 1000, 0.0, kind, kind, error, "" if error else member)


def trials(name: str, *rounds: list[Sample], degraded: str = "m1") -> Trials:
    made = Trials(name, [degraded], settled=1.0)
    for samples in rounds:
        made.add(Measured(0.0, samples, 2.0, cpu=0.25))
    return made


def test_the_messages_are_those_of_etcd_on_the_wire() -> None:
    # The numbers of the fields are those of etcd's rpc.proto and kv.proto.
    assert PutRequest(key=b"k", value=b"v").SerializeToString() == b"\x0a\x01k\x12\x01v"
    asked = RangeRequest(key=b"k", range_end=b"l", limit=5, serializable=True)
    assert asked.SerializeToString() == b"\x0a\x01k\x12\x01l\x18\x05\x38\x01"
    answer = RangeResponse.FromString(b"\x0a\x04\x10\x07\x20\x03\x12\x06\x0a\x01k\x2a\x01v\x20\x01")
    assert (answer.header.member_id, answer.header.raft_term, answer.count) == (7, 3, 1)
    assert [(kv.key, kv.value) for kv in answer.kvs] == [(b"k", b"v")]


def test_a_workload_has_its_mix_and_all_keys() -> None:
    workload, rng = mixed(0.8), random.Random(1)
    drawn = [workload.draw(rng) for _ in range(20_000)]
    reads = [request for request in drawn if request.kind == "read"]
    assert len(reads) / len(drawn) == pytest.approx(0.8, abs=0.01)
    assert len({request.message.key for request in drawn}) == KEYS
    assert {len(request.message.value) for request in drawn if request.kind == "write"} == {
        VALUE_SIZE
    }


@pytest.mark.parametrize("size", [1, 500, KEYS])
def test_ranges_stay_within_the_keys(size: int) -> None:
    made = ranges(size)
    assert len(made) == KEYS - size + 1
    last = made[-1].message
    assert last.key < last.range_end == b"key:%06d" % KEYS


def test_trials_are_kept_apart_and_summed_up() -> None:
    first = [sample(0.1, 4), sample(0.2, 4, member="m1"), sample(1.2, 8), sample(1.4, 2, "write")]
    second = [*first, sample(1.6, 8, member="m1")]
    made = trials("ours", first, second)
    assert made.values("throughput") == [2.0, 2.5]
    assert made.values("degraded_share") == [0.0, 0.5]
    assert made.values("write_p50") == [0.002, 0.002]
    (result,) = results({"ours": made})
    assert result["degraded_share"] == 0.25
    assert result["write_share"] == {"m0": 1.0}
    assert result["notes"] == {"write_p50_ms": 2.0, "write_p99_ms": 2.0, "client_cpu": 0.25}
    assert result["write_curve"]


def test_a_pair_is_compared_within_each_round() -> None:
    slow = trials("slow", [sample(0, 4)], [sample(0, 90)], [sample(0, 6)])
    fast = trials("fast", [sample(0, 2)], [sample(0, 30)], [sample(0, 3)])
    assert paired(slow, fast, "read_p50") == pytest.approx(2.0)
    idle = trials("idle", [sample(0, 4)])
    assert paired(idle, idle, "write_p50") == float("inf")


def test_the_share_over_time_counts_answered_reads() -> None:
    timeline = shares_in_windows(
        [
            sample(0.1, 1),
            sample(0.2, 1, member="m1"),
            sample(0.2, 1, "write", member="m1"),
            sample(0.3, 1, error="UNAVAILABLE"),
            sample(0.6, 1, member="m1"),
        ],
        onset=0.5,
    )
    assert timeline == [
        {"at_s": -0.25, "share": {"m0": 0.5, "m1": 0.5}},
        {"at_s": 0.25, "share": {"m0": 0.0, "m1": 1.0}},
    ]


def test_tables_have_a_row_per_contender_and_per_kind_of_error() -> None:
    made = trials(
        "ours",
        [
            sample(0.1, 4),
            sample(0.5, 4, "write", error="UNAVAILABLE"),
            sample(0.9, 4, "write", error="UNAVAILABLE"),
            sample(0.7, 4, error="DEADLINE_EXCEEDED"),
        ],
    )
    assert table_of_errors([made])["rows"][1:] == [
        ["ours", "read", "DEADLINE_EXCEEDED", "1", "0.70", "0.70"],
        ["ours", "write", "UNAVAILABLE", "2", "0.50", "0.90"],
    ]
    shares = table_of_shares([made], {"m0": "m0 (leader)", "m1": "m1"})["rows"]
    assert shares[0][1:3] == ["reads m0 (leader)", "reads m1"]
    assert shares[1] == ["ours", "100.0%", "0.0%", "-", "-"]
    title, row = table_of_trials([made])["rows"]
    assert len(title) == len(row)
    assert row[1] == "0.50"


def test_the_aftermath_counts_from_the_fault_and_from_the_new_leader() -> None:
    seen = aftermath(
        [
            sample(0.1, 10, error="UNAVAILABLE"),  # long over
            sample(0.9, 500, error="DEADLINE_EXCEEDED"),  # on its way when it happened
            sample(1.5, 100, "write", error="UNAVAILABLE"),
            sample(1.8, 50, "write"),  # acknowledged before the election was seen
            sample(2.4, 300, "write"),
            sample(2.5, 100, error="UNAVAILABLE"),
        ],
        1.0,
        2.2,
    )
    assert (seen.read_errors, seen.write_errors) == (2, 1)
    assert seen.last_read_error == pytest.approx(1.5)
    assert seen.last_write_error == pytest.approx(0.5)
    assert seen.elected == pytest.approx(1.2)
    assert seen.writes_resumed == pytest.approx(0.5)
    assert seen.last_error_since == pytest.approx(0.3)


def test_the_aftermath_of_a_followers_fault_knows_no_election() -> None:
    seen = aftermath([sample(0.5, 1, "write"), sample(2, 100, "write")], 1.0, None)
    assert seen.elected is None
    assert seen.writes_resumed == pytest.approx(1.1)
    assert seen.read_errors == seen.last_error_since == 0


def test_writes_that_never_go_on_are_told_so() -> None:
    seen = aftermath([sample(0.5, 1, "write")], 1.0, math.inf)
    assert seen.writes_resumed == math.inf
    (_, row) = table_of_faults("a fault", {"ours": [seen], "idle": []})["rows"]
    assert row == ["ours", "0", "0", "0.00", "0.00", "inf", "never"]


def test_a_run_is_filed_by_what_is_varied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_results, "FOLDER", tmp_path)
    run: RunResult = {
        "scenario": "etcd-steady",
        "question": "Is it?",
        "mode": "asyncio",
        "seed": 1,
        "environment": environment(Outcome({}, [], etcd_server="3.5.1")),
        "parameters": {"members": 5, "mix": "50/50"},
        "contenders": [trials("ours", [sample(0, 1)]).result()],
        "bars": [],
        "plots": [
            {
                "title": "Throughput",
                "x": "workers",
                "y": "per second",
                "lines": [{"name": "ours", "points": [(128.0, 4.0), (256.0, 8.0)]}],
            }
        ],
    }
    path = bench_results.file(run)
    assert path.name == "etcd-steady-5-50-50-asyncio.json"
    shown = bench_results.page([path])
    assert "python -m bench etcd-steady --mode asyncio --members 5 --mix 50/50" in shown
    assert "etcd 3.5.1" in shown
    assert "Throughput" in page(run)


def test_a_quota_below_what_linux_can_do_is_refused() -> None:
    with pytest.raises(ValueError, match=r"at least 0\.1"):
        CpuQuota("test", 0.05)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--members", "4"],
        ["--mix", "80/30"],
        ["--mix", "80"],
        ["--workers", "0"],
        ["--client-rtt-ms", "-1"],
        ["--peer-rtt-ms", "nan"],
    ],
)
def test_bad_options_of_a_cluster_end_with_a_message(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["etcd-steady", *arguments])
    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err
