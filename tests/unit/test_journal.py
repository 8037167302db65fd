"""What is logged: one line for each ejection and each return, and nothing else."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Any, cast

import pytest

from lb_strategies import BalancerOptions, LoadBalancer, Outcome
from lb_strategies.forks import after_fork_in_child

from .scripted import MS, answer, balancer, closed_loop, ejected, fail, in_flight, look

AB = ("a", "b")
ABC = ("a", "b", "c")
LOGGER = logging.getLogger("lb_strategies")


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Capture everything that the library logs."""
    caplog.set_level(logging.DEBUG, LOGGER.name)
    return caplog


class Handler(logging.Handler):
    """Calls a function with each line."""

    def __init__(self, function: Callable[[str], object]) -> None:
        super().__init__()
        self._function = function

    def emit(self, record: logging.LogRecord) -> None:
        self._function(record.getMessage())


@contextmanager
def handled(function: Callable[[str], object]) -> Iterator[None]:
    """Call `function` with each line that is logged inside the block."""
    handler = Handler(function)
    LOGGER.addHandler(handler)
    level = LOGGER.level
    LOGGER.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(level)


def settled(
    endpoints: tuple[Hashable, ...] = ABC, *, options: BalancerOptions | None = None
) -> tuple[LoadBalancer, float]:
    """Return a balancer that has heard ten answers of each endpoint and looked at all."""
    target = balancer(options=options)
    now = answer(target, endpoints, now=0.0)
    look(target, endpoints, now=now)
    return target, now


def eventually_back(target: LoadBalancer, *, now: float) -> float:
    """Let everybody answer well until nobody is out; return when that was."""
    for _ in range(1000):
        _, now = closed_loop(target, ABC, lambda *_: (MS, Outcome.SUCCESS), now=now, picks=100)
        if not ejected(target, now=now):
            return now
    raise AssertionError("nobody came back")


# -- the lines ------------------------------------------------------------------------------


def test_a_slow_endpoint_is_logged_once_with_its_mean_and_the_median(
    log: pytest.LogCaptureFixture,
) -> None:
    target, now = settled()
    now = answer(target, ["a"], now=now, rtt=20 * MS, times=20)
    [record] = log.records
    assert (record.name, record.levelname) == ("lb_strategies", "WARNING")
    assert record.getMessage() == (
        "ejected a: reason=latency mean=0.002252s median=0.001000s samples=13 "
        "failures_in_a_row=0 succeeded=13/13 oldest_request=0.000000s pool=2/3"
    )


def test_failures_are_logged_once_with_their_row_and_the_success_rate(
    log: pytest.LogCaptureFixture,
) -> None:
    target, now = settled()
    now = answer(target, ["a"], now=now, times=30)
    fail(target, "a", now=now, times=8)
    [line] = log.messages
    assert "ejected a: reason=errors " in line
    assert " failures_in_a_row=5 succeeded=40/45 " in line


def test_too_many_failures_are_logged_once_with_the_success_rate(
    log: pytest.LogCaptureFixture,
) -> None:
    target, now = settled()
    fail(target, "a", now=now, times=8)
    [line] = log.messages
    assert " failures_in_a_row=3 succeeded=10/13 " in line  # 77 %, and 80 are enough


def test_a_hung_endpoint_is_logged_once_with_the_age_of_its_request(
    log: pytest.LogCaptureFixture,
) -> None:
    target, now = settled()
    hanging = target.begin("a", now=now)
    look(target, ABC, now=now + 0.3)
    [line] = log.messages
    assert "ejected a: reason=hung " in line
    assert " oldest_request=0.300000s pool=2/3" in line
    hanging.done(Outcome.TIMEOUT, now=now + 0.5)
    assert len(log.messages) == 1


def test_a_return_is_logged_once_with_its_probe_and_how_long_it_took(
    log: pytest.LogCaptureFixture,
) -> None:
    target, now = settled(options=BalancerOptions(probe_jitter=0.0))
    fail(target, "a", now=now)
    assert look(target, ABC, now=now + 0.9) != "a"
    now += 1.5
    probe = target.acquire(ABC, now=now)
    assert probe.endpoint == "a"
    log.clear()
    probe.done(Outcome.SUCCESS, now=now + 1.25 * MS)
    [record] = log.records
    assert record.levelname == "INFO"
    assert record.getMessage() == (
        "returned a: reason=errors out_for=1.501s probe=0.001250s median=0.001000s pool=3/3"
    )
    now = answer(target, ABC, now=now + 1.0)
    assert len(log.records) == 1


def test_an_outlier_that_makes_room_for_a_hung_one_returns_in_a_line_of_its_own(
    log: pytest.LogCaptureFixture,
) -> None:
    target, now = settled()
    now = answer(target, "b", now=now, rtt=4 * MS)
    target.begin("a", now=now)
    log.clear()
    look(target, ABC, now=now + 0.060)
    returned, out = (record.getMessage() for record in log.records)
    assert returned.startswith("returned b: reason=latency out_for=0.0")
    assert returned.endswith("s, a worse one takes its place, pool=3/3")
    assert out.startswith("ejected a: reason=hung ")
    assert out.endswith(" pool=2/3")


def test_a_probe_that_does_not_convince_is_no_line(log: pytest.LogCaptureFixture) -> None:
    target, now = settled(options=BalancerOptions(probe_jitter=0.0))
    fail(target, "a", now=now)
    probe = target.acquire(ABC, now=now + 1.5)
    assert probe.endpoint == "a"
    probe.done(Outcome.SUCCESS, now=now + 1.7)
    assert len(log.messages) == 1


def test_an_endpoint_that_is_explored_is_no_line(log: pytest.LogCaptureFixture) -> None:
    """It was in the pool all the time; only its peak kept it from being picked."""
    target, now = settled()
    answer(target, ["a"], now=now, rtt=0.1, times=1)
    _, now = closed_loop(target, ABC, lambda *_: (MS, Outcome.SUCCESS), now=now + 0.1, picks=2000)
    assert target.snapshot(now=now)["a"].probes > 0
    assert log.messages == []


def test_the_last_one_in_the_pool_and_the_first_one_back_can_be_told(
    log: pytest.LogCaptureFixture,
) -> None:
    """A pool of nobody serves everybody."""
    target, now = settled()
    for endpoint in ABC:
        fail(target, endpoint, now=now)
    assert [line[-8:] for line in log.messages] == ["pool=2/3", "pool=1/3", "pool=0/3"]
    log.clear()
    eventually_back(target, now=now)
    assert [line[-8:] for line in log.messages] == ["pool=1/3", "pool=2/3", "pool=3/3"]


def test_one_that_returns_after_its_peers_were_forgotten_is_alone_in_the_pool(
    log: pytest.LogCaptureFixture,
) -> None:
    target, now = settled()
    fail(target, "a", now=now)
    probe = target.acquire(ABC, now=now + 1.5)
    assert probe.endpoint == "a"
    target.update(AB)
    probe.done(Outcome.SUCCESS, now=now + 1.5 + MS)
    assert log.messages[1:] == [
        "returned a: reason=errors out_for=1.501s probe=0.001000s median=0.001000s pool=1/1"
    ]


def test_ordinary_traffic_logs_nothing(log: pytest.LogCaptureFixture) -> None:
    target, now = settled()
    outcomes = cycle((Outcome.SUCCESS, Outcome.CANCELLED, Outcome.REDIRECT, Outcome.UNTIMED))
    counts, _ = closed_loop(
        target,
        ABC,
        lambda *_: (MS, next(outcomes)),
        now=now,
        picks=5000,
    )
    assert min(counts.values()) > 1000
    assert log.records == []


def test_lines_agree_with_the_counters(log: pytest.LogCaptureFixture) -> None:
    target, now = settled()
    for endpoint, times in (("a", 5), ("b", 5), ("a", 5)):
        fail(target, endpoint, now=now, times=times)
        now = eventually_back(target, now=now)
    now = answer(target, ["c"], now=now, rtt=50 * MS, times=10)
    stats = target.snapshot(now=now)
    assert [stats[name].ejections for name in ABC] == [2, 1, 1]
    assert [stats[name].returns for name in ABC] == [2, 1, 0]
    assert stats["a"].ejections_for == {"latency": 0, "errors": 2, "hung": 0}
    assert stats["c"].ejections_for == {"latency": 1, "errors": 0, "hung": 0}
    assert [line.split(":")[0] for line in log.messages] == [
        *("ejected a", "returned a", "ejected b", "returned b", "ejected a", "returned a"),
        "ejected c",
    ]


# -- how they are written -------------------------------------------------------------------


def test_a_program_that_configures_no_logging_sees_nothing() -> None:
    """Python itself would print warnings that nobody handles."""
    program = """
from lb_strategies import LoadBalancer, Outcome
balancer = LoadBalancer("latency_based")
balancer.acquire(("a", "b"), now=0.0).done(Outcome.SUCCESS, now=0.0)
for _ in range(5):
    balancer.begin("a", now=0.0).done(Outcome.FAILURE, now=0.0)
assert balancer.snapshot(now=0.0)["a"].ejected
"""
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (result.stdout, result.stderr) == ("", "")


def test_the_lock_is_free_when_a_line_is_written() -> None:
    """From another thread, which would not get it; and from this one, which picks anew."""
    target, now = settled()
    seen: list[object] = []

    def look_closely(line: str) -> None:
        thread = threading.Thread(target=lambda: seen.append(ejected(target, now=now)))
        thread.start()
        thread.join(timeout=5)
        answer(target, ["b"], now=now, times=1)
        seen.append(line.partition(":")[0])

    with handled(look_closely):
        fail(target, "a", now=now)
        hanging = target.begin("b", now=now)
        look(target, ABC, now=now + 0.3)
    hanging.done(Outcome.CANCELLED, now=now + 0.3)
    assert seen == [{"a"}, "ejected a"]  # no room for a second one that is only slow


def test_a_pick_that_is_given_back_inside_the_lock_leaves_its_line_for_the_next_call(
    log: pytest.LogCaptureFixture,
) -> None:
    """The collector can close a forgotten coroutine in the middle of another pick."""
    target, now = settled()
    with target._lock:
        fail(target, "a", now=now)
        assert ejected(target, now=now) == {"a"}
        assert log.messages == []
    look(target, ABC, now=now)
    assert len(log.messages) == 1


def test_a_handler_that_causes_the_next_ejection_gets_both_lines_in_order() -> None:
    target, now = settled()
    lines: list[str] = []

    def next_one(line: str) -> None:
        lines.append(line.partition(":")[0])
        fail(target, "b", now=now)
        lines.append("end")

    with handled(next_one):
        fail(target, "a", now=now)
    assert lines == ["ejected a", "end", "ejected b", "end"]


def test_a_slow_handler_keeps_no_other_thread_waiting() -> None:
    """And what the others note meanwhile is written after it, in the order it happened."""
    target, now = settled()
    entered, go_on = threading.Event(), threading.Event()
    lines: list[str] = []

    def slow(line: str) -> None:
        lines.append(line.partition(":")[0])
        entered.set()
        assert go_on.wait(timeout=10)

    with handled(slow):
        thread = threading.Thread(target=fail, args=(target, "a"), kwargs={"now": now})
        thread.start()
        assert entered.wait(timeout=10)
        fail(target, "b", now=now)
        fail(target, "c", now=now)
        assert lines == ["ejected a"]
        go_on.set()
        thread.join(timeout=10)
    assert lines == ["ejected a", "ejected b", "ejected c"]


def test_a_line_noted_just_before_the_turn_is_given_up_is_not_left_behind(
    log: pytest.LogCaptureFixture,
) -> None:
    target, now = settled()

    class Turn:
        """Has another thread note a line at the last moment, and be refused the turn."""

        def __init__(self) -> None:
            self.is_free = True
            self.waits = iter([lambda: fail(target, "b", now=now)])

        def acquire(self, *, blocking: bool) -> bool:
            was_free, self.is_free = self.is_free, False
            return was_free

        def release(self) -> None:
            next(self.waits, int)()
            self.is_free = True

    target._journal._turn = cast("Any", Turn())
    fail(target, "a", now=now, times=3)  # the last one ejects, and nothing comes after it
    assert [line.partition(":")[0] for line in log.messages] == ["ejected a", "ejected b"]


def test_threads_write_one_line_for_each_event_in_the_order_of_events() -> None:
    """Each endpoint leaves and returns in turn, however many threads drive it."""
    target = balancer(options=BalancerOptions(probe_interval=1e-6, max_probe_interval=1e-6))
    lines: list[tuple[str, str]] = []

    def note(line: str) -> None:
        word, name = line.partition(":")[0].split()
        lines.append((word, name))

    def work(seed: int) -> None:
        for step in range(2000):
            pick = target.acquire(ABC, now=step * 0.011)
            bad = (step // 50 + ABC.index(str(pick.endpoint))) % 3 == 0
            pick.done(Outcome.FAILURE if bad else Outcome.SUCCESS, now=step * 0.011)

    switch_interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with handled(note):
            threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(timeout=60)
    finally:
        sys.setswitchinterval(switch_interval)
    stats = target.snapshot(now=2000 * 0.011)
    assert len(lines) > 20
    for name in ABC:
        words = [word for word, whose in lines if whose == name]
        assert words == [("ejected", "returned")[i % 2] for i in range(len(words))]
        assert words.count("ejected") == stats[name].ejections
        assert words.count("returned") == stats[name].returns


def test_a_filter_that_fails_costs_no_pick(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is reported as `logging` reports a handler that fails: if the program wants that."""

    def broken(record: logging.LogRecord) -> bool:
        raise RuntimeError("no filter")

    target, now = settled()
    LOGGER.addFilter(broken)
    try:
        fail(target, "a", now=now)
        assert "RuntimeError: no filter" in capsys.readouterr().err
        monkeypatch.setattr(logging, "raiseExceptions", False)
        fail(target, "b", now=now)
        assert capsys.readouterr().err == ""
    finally:
        LOGGER.removeFilter(broken)
    assert ejected(target, now=now) == {"a", "b"}


def test_a_pick_is_given_back_if_logging_is_interrupted() -> None:
    target, now = settled()
    hanging = target.begin("a", now=now)

    def interrupt(line: str) -> None:
        raise KeyboardInterrupt

    with handled(interrupt), pytest.raises(KeyboardInterrupt):
        target.acquire(ABC, now=now + 0.3)
    assert in_flight(target, now=now) == {"a": 1, "b": 0, "c": 0}
    hanging.done(Outcome.CANCELLED, now=now + 0.3)


def test_a_forked_child_leaves_its_parents_lines_and_writes_its_own(
    log: pytest.LogCaptureFixture,
) -> None:
    target, now = settled()
    with target._lock:
        fail(target, "a", now=now)
    target._journal._turn.acquire()  # another thread of the parent's was writing
    after_fork_in_child()
    look(target, ABC, now=now)
    assert log.messages == []
    fail(target, "b", now=now)
    assert [line.partition(":")[0] for line in log.messages] == ["ejected b"]
