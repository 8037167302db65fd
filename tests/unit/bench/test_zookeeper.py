import math
import random
from pathlib import Path

import pytest
from kazoo.exceptions import ConnectionLoss
from kazoo.handlers.threading import KazooTimeoutError

from bench import results as bench_results
from bench.__main__ import main
from bench.closed_loop import Load, Measured, Request, Workload, run_threads
from bench.load import Sample
from bench.record import RunResult
from bench.scenario import Outcome, environment
from bench.trials import Trials, table_of_requests
from bench.workload import Kind
from bench.zookeeper.faults import arrivals, noticed, table_of_incidents
from bench.zookeeper.load import name_of
from bench.zookeeper.testbed import since
from bench.zookeeper.workload import NODES, VALUE, mixed

READ = Request("read", "get", "/a")


def trials() -> Trials:
    made = Trials("ours", ["server 2"])
    samples = [Sample(0.1, 0.004, 0.0, "read", "get", None)]
    made.add(Measured(0.0, samples, 1.0, cpu=0.25), {"server 1": 3, "server 2": 1})
    return made


def test_the_workload_is_of_all_nodes() -> None:
    workload, rng = mixed(0.8), random.Random(1)
    drawn = [workload.draw(rng) for _ in range(20_000)]
    assert sum(request.kind == "read" for request in drawn) / len(drawn) == pytest.approx(
        0.8, abs=0.01
    )
    assert len({request.message for request in drawn}) == NODES
    assert len(VALUE) == 256


def test_only_the_stores_errors_are_part_of_a_measurement() -> None:
    assert name_of(ConnectionLoss()) == "ConnectionLoss"
    assert name_of(KazooTimeoutError()) == "KazooTimeoutError"
    assert name_of(TypeError()) is None


def test_workers_of_a_closed_loop_rest_after_an_error() -> None:
    load = Load(Workload(1.0, [READ]), workers=2, seconds=0.2, timeout=1.0, seed="1")

    def fail(request: Request, timeout: float) -> str:
        raise ConnectionLoss

    measured = run_threads(load, fail, name_of)
    assert {sample.error for sample in measured.samples} == {"ConnectionLoss"}
    assert len(measured.samples) <= 2 * 4  # one at the start, and one after each rest


def test_a_fault_of_the_benchmarks_own_ends_it() -> None:
    load = Load(Workload(1.0, [READ]), workers=1, seconds=5.0, timeout=1.0, seed="1")

    def fail(request: Request, timeout: float) -> str:
        raise TypeError("a mistake")

    with pytest.raises(TypeError, match="a mistake"):
        run_threads(load, fail, name_of)


def test_shares_are_those_of_the_servers_counters() -> None:
    assert since({"a": 5, "b": 1}, {"a": 9, "b": 1}) == {"a": 4, "b": 0}
    made = trials()
    assert made.result()["share"] == {"server 1": 0.75, "server 2": 0.25}
    assert made.result()["degraded_share"] == 0.25
    table = table_of_requests([made], {"server 1": "server 1 (leader)", "server 2": "server 2"})
    assert table["rows"] == [
        ["contender", "server 1 (leader)", "server 2"],
        ["ours", "75.0%", "25.0%"],
    ]


def test_operations_arrive_at_equal_distances_and_by_the_seed() -> None:
    made = arrivals(20.0, 10.0, 0.8, "seed")
    assert [one.at for one in made] == [number / 20 for number in range(200)]
    kinds = [one.operation.kind for one in made]
    assert 20 < kinds.count("write") < 60
    assert {one.operation.method for one in made} == {"get", "put"}
    assert made == arrivals(20.0, 10.0, 0.8, "seed")


def operation(at: float, latency: float, kind: Kind, error: str | None = None) -> Sample:
    return Sample(at, latency, 0.0, kind, kind, error)


def test_a_client_serves_again_when_reads_and_writes_asked_since_have_been_answered() -> None:
    seen = noticed(
        [
            operation(0.1, 0.1, "write", "ConnectionLoss"),  # long over
            operation(0.9, 1.0, "write", "ConnectionLoss"),  # on its way when it happened
            operation(0.9, 0.3, "write"),
            operation(1.1, 0.1, "read"),
            operation(1.5, 0.2, "read", "ConnectionLoss"),
            operation(1.6, 1.4, "write"),
            operation(2.0, 0.1, "read"),
        ],
        1.0,
        True,
        False,
    )
    assert seen.failed == 2
    assert seen.serving == pytest.approx(2.0)
    assert seen.last_failure == pytest.approx(0.5)
    assert seen.longest == pytest.approx(1.4)
    (_, row) = table_of_incidents("a fault", {"ours": [seen], "idle": []})["rows"]
    assert row == ["ours", "2", "2.00", "0.50", "1.40", "1 of 1", "0 of 1"]


def test_a_client_without_an_answered_write_does_not_serve() -> None:
    seen = noticed([operation(1.5, 0.1, "read")], 1.0, True, True)
    assert seen.serving == math.inf
    (_, row) = table_of_incidents("a fault", {"ours": [seen]})["rows"]
    assert row[2] == "never"


@pytest.mark.parametrize(
    ("round_trips", "name", "options"),
    [
        ((1.0, 2.0), "zookeeper-degraded-3-80-20-sync.json", ""),
        (
            (0.0, 0.0),
            "zookeeper-degraded-3-80-20-client-rtt-ms-0-peer-rtt-ms-0-sync.json",
            " --client-rtt-ms 0 --peer-rtt-ms 0",
        ),
    ],
)
def test_a_run_without_round_trips_is_filed_apart(
    round_trips: tuple[float, float],
    name: str,
    options: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench_results, "FOLDER", tmp_path)
    client, peer = round_trips
    run: RunResult = {
        "scenario": "zookeeper-degraded",
        "question": "Does it?",
        "mode": "sync",
        "seed": 1,
        "environment": environment(Outcome({}, [], zookeeper_server="3.8.0")),
        "parameters": {
            "members": 3,
            "mix": "80/20",
            "client_rtt_ms": client,
            "peer_rtt_ms": peer,
        },
        "contenders": [trials().result()],
        "bars": [],
    }
    path = bench_results.file(run)
    assert path.name == name
    shown = bench_results.page([path])
    command = f"python -m bench zookeeper-degraded --mode sync --members 3 --mix 80/20{options}`"
    assert command in shown
    assert "ZooKeeper 3.8.0" in shown
    assert run["environment"]["versions"]


def test_a_kind_of_clients_that_a_scenario_has_not_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["zookeeper-steady", "--mode", "asyncio"])
    assert ended.value.code == 2
    assert "zookeeper-steady has sync" in capsys.readouterr().err
