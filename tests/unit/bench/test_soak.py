import time

import pytest
from redis.crc import key_slot
from redis.exceptions import ClusterError

from bench.soak.history import History
from bench.soak.log import NO_FAULT, FaultLog
from bench.soak.users import Method, Operation, User

KEYS = ["a", "b"]


def test_only_what_was_written_is_right() -> None:
    history = History(KEYS, seed=1)
    first = history.first("a")
    second = history.next("a")
    assert first != second
    assert history.verdict("a", first) == history.verdict("a", second) == "right"
    assert history.verdict("a", first.encode()) == "right"
    assert history.verdict("a", None) == "missing"
    assert history.verdict("a", 1) == "wrong"
    assert history.verdict("b", second) == "wrong"  # another key's
    assert history.verdict("b", history.first("a")) == "wrong"


@pytest.mark.parametrize("change", ["{}x", "x{}", "", "a=", "a=9-00000000", "a=1-00000000"])
def test_a_value_that_never_was_is_wrong(change: str) -> None:
    history = History(KEYS, seed=1)
    history.next("a")
    assert history.verdict("a", change.format(history.first("a"))) == "wrong"


def test_a_value_is_right_only_from_when_it_is_written() -> None:
    history, later = History(KEYS, seed=1), History(KEYS, seed=1)
    assert history.verdict("a", later.next("a")) == "wrong"
    assert history.verdict("a", history.next("a")) == "right"


def test_another_seed_has_other_values() -> None:
    assert History(KEYS, seed=1).verdict("a", History(KEYS, seed=2).first("a")) == "wrong"


@pytest.fixture
def log() -> FaultLog:
    """A log of two shards; slot 0 is in the first, slot 1 in the second."""
    return FaultLog(lambda slot: slot)


def test_an_error_is_excused_only_for_the_shard_and_the_time_of_a_fault(log: FaultLog) -> None:
    before = time.monotonic()
    with log.window("shard paused", no_reads=[0], no_writes=[0]) as window:
        during = time.monotonic()
        assert log.excuses_error([0], before, during, write=False)
        assert log.excuses_error([1, 0], before, during, write=True)
        assert not log.excuses_error([1], before, during, write=True)
        assert not log.excuses_error([0], before - 2, before - 1, write=True)
    assert log.excuses_error([0], window.end, window.end + 1, write=False)
    assert not log.excuses_error([0], window.end + 1e-6, window.end + 1, write=False)


def test_a_primary_that_is_away_excuses_writes_and_no_reads(log: FaultLog) -> None:
    with log.window("primary paused", no_writes=[0]):
        now = time.monotonic()
        assert log.excuses_error([0], now, now, write=True)
        assert not log.excuses_error([0], now, now, write=False)


def test_a_slow_server_excuses_nothing(log: FaultLog) -> None:
    with log.window("delay"):
        now = time.monotonic()
        assert not log.excuses_error([0, 1], now, now, write=True)
        assert not log.excuses_missing(0, now, now)
        assert log.kind_between(now, now) == "delay"
    assert log.kind_between(now - 2, now - 1) == NO_FAULT
    assert log.begun == {"delay": 1}


def test_a_slot_that_moves_may_seem_missing_and_belongs_to_both_shards(log: FaultLog) -> None:
    with log.window("slot moved", moving=[0]):
        now = time.monotonic()
        assert log.excuses_missing(0, now, now)
        assert not log.excuses_missing(1, now, now)
        assert not log.excuses_error([0], now, now, write=True)
        with log.window("primary paused", no_writes=[1]):
            now = time.monotonic()
            assert log.excuses_error([0], now, now, write=True)


def test_keys_that_are_apart_while_their_slot_moves_cannot_be_read_at_once(log: FaultLog) -> None:
    with log.window("slot moved", moving=[0]):
        now = time.monotonic()
        assert log.excuses_refusal([1, 0, 0], now, now)
        assert not log.excuses_refusal([0, 1, 1], now, now)
    assert not log.excuses_refusal([0, 0], now + 1, now + 2)


@pytest.mark.parametrize(
    ("method", "error", "outcome"),
    [
        ("mget", "Command # 1 (MGET a b) of pipeline caused error: TTL exhausted.", "unavoidable"),
        ("reads", "TTL exhausted.", "defect"),
        ("mget", "Connection refused", "defect"),
    ],
)
def test_a_user_is_refused_only_what_is_one_command(
    log: FaultLog, method: Method, error: str, outcome: str
) -> None:
    user = User("me", KEYS, ["a"], History(KEYS, seed=1), log, seed=1)
    keys = ["{a}1", "{a}2"]
    with log.window("slot moved", moving=[key_slot(b"a")]):
        user.fail(Operation(method, [], keys), time.monotonic(), ClusterError(error))
    assert user.tally.count(outcome) == 1


def test_a_user_counts_every_operation_once_and_tells_of_defects(log: FaultLog) -> None:
    history = History(KEYS, seed=1)
    user = User("me", KEYS * 8, ["a"], history, log, seed=1)
    operations = [user.plan() for _ in range(200)]
    now = time.monotonic()
    for operation in operations[:50]:
        user.judge(operation, now, [history.first(key) for key in operation.reads])
    for operation in operations[50:100]:
        user.fail(operation, now, ConnectionError("refused"))
    for operation in operations[100:150]:
        user.give_up(operation, now)
    reading = [operation for operation in operations if operation.reads]
    for operation in reading[:50]:
        user.judge(operation, now, ["never written"] * len(operation.reads))
    tally = user.tally
    assert {outcome: tally.count(outcome) for outcome in ("answered", "cancelled", "wrong")} == {
        "answered": 50,
        "cancelled": 50,
        "wrong": 50,
    }
    assert tally.count("defect") == tally.errors["defect", "ConnectionError"] == 50
    assert len(tally.problems) == 20
    assert tally.methods.total() == tally.outcomes.total() == 200
    assert {key for o in operations for key, _ in o.writes} == {"a"}
