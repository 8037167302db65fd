"""The state machine's edges: bad input, groups and their cache, memory, membership."""

from __future__ import annotations

import gc
import itertools
import random
import threading
import tracemalloc
import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import pytest

from lb_strategies import (
    BalancerOptions,
    Candidate,
    LoadBalancer,
    LoadBalancingStrategy,
    NoEndpointError,
    Outcome,
)
from lb_strategies.forks import after_fork_in_child

from .scripted import MS, answer, balancer, closed_loop, ejected, fail, in_flight, look

AB = ("a", "b")
ABC = ("a", "b", "c")


class First:
    """Always the first candidate."""

    def choose(self, candidates: Sequence[Candidate], now: float, rng: random.Random) -> Candidate:
        return candidates[0]


class Stranger:
    """Returns what is no candidate at all."""

    def choose(self, candidates: Sequence[Candidate], now: float, rng: random.Random) -> Any:
        return "a"


# -- construction ---------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", list(LoadBalancingStrategy))
def test_a_strategy_is_accepted_by_member_and_by_value(strategy: LoadBalancingStrategy) -> None:
    assert LoadBalancer(strategy).strategy is strategy
    assert LoadBalancer(strategy.value).strategy is strategy


def test_a_policy_of_the_users_own_is_accepted() -> None:
    target = LoadBalancer(First())
    assert target.strategy is None
    assert {target.acquire(ABC, now=0.0).endpoint for _ in range(5)} == {"a"}


def test_the_class_of_a_policy_is_not_a_policy() -> None:
    wrong: Any = First
    with pytest.raises(ValueError, match="unknown load balancing strategy"):
        LoadBalancer(wrong)


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(ValueError, match="valid names are round_robin, "):
        LoadBalancer("fastest")


@pytest.mark.parametrize("wrong", [{"decay": 1.0}, 10.0, "fast"])
def test_options_of_another_type_are_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="options must be a BalancerOptions"):
        LoadBalancer("random", options=wrong)


@pytest.mark.parametrize("wrong", [1, random, "seed"])
def test_a_generator_of_another_type_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"rng must be a random\.Random"):
        LoadBalancer("random", rng=wrong)


def test_without_a_generator_two_balancers_choose_differently() -> None:
    """60 times the same of three would be 3^-60."""
    one, other = LoadBalancer("random"), LoadBalancer("random")
    assert [one.choose(ABC, now=0.0) for _ in range(60)] != [
        other.choose(ABC, now=0.0) for _ in range(60)
    ]


@pytest.mark.parametrize("strategy", list(LoadBalancingStrategy))
def test_equal_seeds_choose_equally(strategy: LoadBalancingStrategy) -> None:
    def run() -> list[Hashable]:
        target = balancer(strategy, seed=7)
        picks = [target.acquire(ABC, now=index * MS) for index in range(100)]
        return [pick.endpoint for pick in picks]

    assert run() == run()


# -- candidates -----------------------------------------------------------------------------


@pytest.mark.parametrize("empty", [(), [], set(), iter(())])
def test_no_candidates_is_an_error(empty: Any) -> None:
    target = balancer()
    with pytest.raises(NoEndpointError, match="no candidates"):
        target.acquire(empty, now=0.0)
    with pytest.raises(NoEndpointError, match="no candidates"):
        target.choose((), now=0.0)
    assert target.snapshot(now=0.0) == {}


@pytest.mark.parametrize("wrong", ["abc", b"xyz"])
def test_a_string_is_not_several_endpoints(wrong: Any) -> None:
    target = balancer()
    asks: list[Callable[[], object]] = [
        lambda: target.acquire(wrong, now=0.0),
        lambda: target.choose(wrong, now=0.0),
        lambda: target.update(wrong),
        lambda: target.acquire(ABC, now=0.0, fallback=wrong),
    ]
    for ask in asks:
        with pytest.raises(TypeError, match="several endpoints, got the string"):
            ask()


@pytest.mark.parametrize("wrong", [(["a"],), [["a"]], ({},), 5, None])
def test_what_is_not_hashable_or_not_iterable_is_refused(wrong: Any) -> None:
    target = balancer()
    asks: list[Callable[[], object]] = [
        lambda: target.acquire(wrong, now=0.0),
        lambda: target.choose(wrong, now=0.0),
        lambda: target.update(wrong),
    ]
    for ask in asks:
        with pytest.raises(TypeError, match="hashable"):
            ask()


def test_an_endpoint_to_begin_on_must_be_hashable() -> None:
    wrong: Any = ["a"]
    with pytest.raises(TypeError, match=r"an endpoint must be hashable, got \['a'\]"):
        balancer().begin(wrong, now=0.0)


def test_an_operation_must_be_hashable_and_nothing_is_counted() -> None:
    target = balancer()
    wrong: Any = ["get"]
    for _ in range(2):
        with pytest.raises(TypeError, match="unhashable"):
            target.acquire(ABC, now=0.0, operation=wrong)
    assert set(in_flight(target, now=0.0).values()) == {0}


@pytest.mark.parametrize("units", [0, -1])
def test_less_than_one_unit_is_refused(units: int) -> None:
    target = balancer()
    with pytest.raises(ValueError, match="units must be at least 1"):
        target.acquire(ABC, now=0.0, units=units)
    with pytest.raises(ValueError, match="units must be at least 1"):
        target.begin("a", now=0.0, units=units)


@pytest.mark.parametrize("strategy", list(LoadBalancingStrategy))
def test_any_iterable_of_candidates_will_do(strategy: LoadBalancingStrategy) -> None:
    target = balancer(strategy)
    for candidates in (["a"], {"a"}, {"a": 1}, iter(["a"]), (e for e in "a"), ("a", "a")):
        pick = target.acquire(candidates, now=0.0)
        pick.done(Outcome.SUCCESS, now=MS)
        assert pick.endpoint == "a"
    assert list(target.snapshot(now=0.0)) == ["a"]


def test_an_endpoint_comes_back_as_the_object_that_was_handed_in() -> None:
    endpoint = ("127.0.0.1", 6379)
    assert balancer().acquire([endpoint], now=0.0).endpoint is endpoint


def test_candidates_may_be_computed_from_the_balancer_itself() -> None:
    """An iterator is the caller's code: run with the lock held, it would wait for ever."""
    target = balancer()
    answer(target, ABC, now=0.0)
    chosen: list[Hashable] = []

    def idle() -> Iterator[str]:
        for name in ABC:
            if not in_flight(target, now=1.0)[name]:
                yield name

    def work() -> None:
        chosen.append(target.acquire(idle(), now=1.0).endpoint)
        chosen.append(target.choose(idle(), now=1.0))
        chosen.append(target.acquire(idle(), now=1.0, fallback=idle()).endpoint)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(20.0)
    assert not thread.is_alive(), "the balancer waits for itself"
    assert set(chosen) <= set(ABC)
    assert len(chosen) == 3


def test_a_policy_that_returns_something_else_is_told_so() -> None:
    target = LoadBalancer(Stranger())
    with pytest.raises(TypeError, match="a policy must return one of its candidates, got 'a'"):
        target.acquire(ABC, now=0.0)
    assert set(in_flight(target, now=0.0).values()) == {0}


# -- choosing without picking -----------------------------------------------------------------


@pytest.mark.parametrize("strategy", list(LoadBalancingStrategy))
def test_choosing_changes_nothing_that_can_be_seen(strategy: LoadBalancingStrategy) -> None:
    target = balancer(strategy)
    now = answer(target, ABC, now=0.0)
    look(target, ABC, now=now)
    fail(target, "a", now=now)
    target.begin("b", now=now)
    now += 5.0
    before = target.snapshot(now=now)
    assert {target.choose(ABC, now=now) for _ in range(200)} <= set(ABC)
    assert target.snapshot(now=now) == before


def test_choosing_among_strangers_does_not_make_them_members() -> None:
    target = balancer()
    assert target.choose(["x", "y"], now=0.0) in {"x", "y"}
    assert target.choose(ABC, now=0.0, exclude=ABC, fallback=("z",)) == "z"
    assert target.snapshot(now=0.0) == {}


def test_choosing_names_the_probe_that_a_pick_would_send() -> None:
    target = balancer()
    now = answer(target, ABC, now=0.0)
    look(target, ABC, now=now)
    fail(target, "a", now=now)
    assert {target.choose(ABC, now=now + 1.2) for _ in range(20)} == {"a"}
    assert "a" not in {target.choose(ABC, now=now + 1.2, exclude=("a",)) for _ in range(20)}
    assert target.acquire(ABC, now=now + 1.2).endpoint == "a"
    assert "a" not in {target.choose(ABC, now=now + 1.2) for _ in range(20)}


# -- fallback ---------------------------------------------------------------------------------


@pytest.mark.parametrize("fallback", [("p",), ["p"]])
def test_the_fallback_serves_while_no_candidate_can(fallback: Sequence[str]) -> None:
    """Each of the two: ejected or excluded; a probe still goes to its endpoint when due."""
    target = balancer()
    now = answer(target, AB, now=0.0)
    look(target, AB, now=now)

    def asked(exclude: Sequence[str] = ()) -> set[Hashable]:
        for _ in range(5):
            chosen = target.choose(AB, now=now, exclude=exclude, fallback=fallback)
            pick = target.acquire(AB, now=now, exclude=exclude, fallback=fallback)
            pick.done(Outcome.UNTIMED, now=now)
            assert (chosen == "p") == (pick.endpoint == "p")
        return {pick.endpoint}

    assert asked() <= {"a", "b"}
    assert asked(exclude=("a", "b")) == {"p"}
    fail(target, "a", now=now)
    assert asked() == {"b"}
    assert asked(exclude=("b",)) == {"p"}
    fail(target, "b", now=now)
    assert asked() == {"p"}
    now += 1.2
    assert target.acquire(AB, now=now, fallback=fallback).is_probe


@pytest.mark.parametrize("sick", ["b", "ab"])
def test_a_retry_asks_an_ejected_candidate_rather_than_the_fallback_again(sick: str) -> None:
    """Who retries until everyone was asked would ask the fallback for ever."""
    target = balancer()
    now = answer(target, AB, now=0.0)
    look(target, AB, now=now)
    for endpoint in sick:
        fail(target, endpoint, now=now)
    tried, everyone = ("a", "p"), ("a", "b", "p")
    assert target.choose(AB, now=now, exclude=tried, fallback=("p",)) == "b"
    assert target.acquire(AB, now=now, exclude=tried, fallback=("p",)).endpoint == "b"
    assert target.choose(AB, now=now, exclude=everyone, fallback=("p",)) == "p"


def test_a_fallback_of_one_does_not_take_its_endpoint_out_of_comparisons() -> None:
    target = balancer()
    now = answer(target, ("p", *AB), now=0.0)
    look(target, ("p", *AB), now=now)
    assert target.acquire(AB, now=now, exclude=AB, fallback=("p",)).endpoint == "p"
    fail(target, "p", now=now)
    assert ejected(target, now=now) == {"p"}


def test_a_retry_prefers_a_healthy_newcomer_to_an_ejected_endpoint() -> None:
    target = balancer()
    now = answer(target, AB, now=0.0)
    look(target, ABC, now=now)
    fail(target, "b", now=now)
    target.acquire(ABC, now=now)
    picks = [target.acquire(ABC, now=now, exclude=("a",)) for _ in range(20)]
    assert {pick.endpoint for pick in picks} == {"c"}


# -- begin ------------------------------------------------------------------------------------


def test_a_redirect_counts_load_and_no_pick() -> None:
    target = balancer(LoadBalancingStrategy.ROUND_ROBIN)
    target.begin("a", now=0.0)
    stats = target.snapshot(now=0.0)["a"]
    assert (stats.in_flight, stats.picks) == (1, 0)


# -- membership -------------------------------------------------------------------------------


def test_an_update_makes_exactly_that_the_membership() -> None:
    target = balancer()
    target.update(["a", "b", "a"])
    assert list(target.snapshot(now=0.0)) == ["a", "b"]
    target.update(iter("bc"[index] for index in range(2)))
    assert set(target.snapshot(now=0.0)) == {"b", "c"}
    target.update([])
    assert target.snapshot(now=0.0) == {}


def test_a_group_without_the_endpoints_that_left_keeps_working() -> None:
    target = balancer()
    now = answer(target, (*ABC, "d"), now=0.0)
    look(target, AB, now=now)
    look(target, ("c", "d"), now=now)
    target.update(ABC)
    assert look(target, AB, now=now) in AB
    fail(target, "a", now=now)
    assert look(target, AB, now=now) == "b"
    assert "d" not in target.snapshot(now=now)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_an_answer_from_an_endpoint_that_left_is_ignored(outcome: Outcome) -> None:
    """Also if nobody else has answered that kind of operation yet."""
    target = balancer()
    answer(target, ["a"], now=0.0, operation="get")
    late = target.begin("b", now=1.0, operation="scan")
    target.update(["a"])
    before = target.snapshot(now=2.0)
    late.done(outcome, now=2.0)
    late.done(outcome, now=3.0)
    assert target.snapshot(now=2.0) == before
    assert late.endpoint == "b"


def test_an_endpoint_that_left_is_no_longer_compared_with() -> None:
    """The slow one leaves: the next answers are judged without it."""
    target = balancer()
    now = answer(target, ["a"], now=0.0, rtt=100 * MS)
    now = answer(target, ["b", "c"], now=now)
    look(target, ABC, now=now)
    target.update(["b", "c"])
    now = answer(target, ["b"], now=now, times=3)
    look(target, ("b", "c"), now=now)
    assert target.snapshot(now=now)["b"].peak_rtt == pytest.approx(MS)


# -- the cache of groups, and memory ------------------------------------------------------------


def test_a_group_is_found_by_value_whatever_object_names_it() -> None:
    """Fresh tuples, more than are cached by identity, with the ids of dead ones used again."""
    target = balancer(LoadBalancingStrategy.ROUND_ROBIN)
    counts: Counter[Hashable] = Counter()
    for index in range(3000):
        size = 2 + index % 2
        candidates = tuple(f"{name}" for name in "abc"[:size])
        chosen = target.acquire(candidates, now=index * MS)
        chosen.done(Outcome.SUCCESS, now=index * MS)
        assert chosen.endpoint in candidates
        counts[chosen.endpoint] += 1
    assert sum(counts.values()) == 3000
    assert len(target.snapshot(now=0.0)) == 3


def test_ids_that_are_used_again_never_name_another_group() -> None:
    """Tuples that come and go at the same addresses, with groups dropped by updates between."""
    target = balancer()
    generator = random.Random(5)
    names = [f"e{index}" for index in range(12)]
    for step in range(4000):
        candidates = tuple(generator.sample(names, generator.randint(1, 4)))
        pick = target.acquire(candidates, now=step * MS)
        assert pick.endpoint in candidates
        pick.done(Outcome.SUCCESS, now=(step + 1) * MS)
        del candidates
        if step % 50 == 0:
            target.update(generator.sample(names, 6))


def test_memory_is_flat_under_endless_picks_and_new_candidates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Picks of 100 kinds on one tuple, then ever new tuples, of which 256 groups are kept here.

    A group with its tuple is about 1 kB, so 500 kB is twice what they all need.
    """
    monkeypatch.setattr("lb_strategies.membership._MOST_GROUPS", 256)
    target = balancer()
    names = tuple(f"e{index}" for index in range(30))
    target.update(names)
    generator = random.Random(3)

    def picks(count: int, candidates: Iterator[tuple[str, ...]]) -> None:
        for step in range(count):
            pick = target.acquire(next(candidates), now=step * MS, operation=f"op {step % 100}")
            pick.done(Outcome.SUCCESS, now=step * MS + MS)

    same = itertools.repeat(names[:3])
    fresh = (tuple(generator.sample(names, 3)) for _ in itertools.count())
    picks(3000, same)
    tracemalloc.start()
    try:
        picks(15_000, same)  # the interpreter's free lists fill up first
        before, _ = tracemalloc.get_traced_memory()
        picks(6000, same)
        after, _ = tracemalloc.get_traced_memory()
        picks(1500, fresh)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 50_000
    assert peak < 500_000
    assert len(target._members.groups) <= 256
    assert len(target._members.groups_by_id) <= 256


def test_a_tuple_is_cached_by_identity_as_one_of_64() -> None:
    target = balancer()
    kept = [tuple(f"{name}" for name in ABC) for _ in range(200)]
    for candidates in kept:
        look(target, candidates, now=0.0)
    assert 1 <= len(target._members.groups_by_id) <= 64
    assert len(target._members.groups) == 1


def test_lists_leave_nothing_in_the_identity_cache() -> None:
    target = balancer()
    for _ in range(100):
        target.acquire(list(ABC), now=0.0).done(Outcome.SUCCESS, now=MS)
    assert target._members.groups_by_id == {}


def test_a_fork_reaches_every_balancer() -> None:
    """The hook itself; what a real child sees is among the twenty behaviours."""
    targets = [balancer(), balancer(LoadBalancingStrategy.HYBRID)]
    for target in targets:
        target.acquire(ABC, now=0.0)
    after_fork_in_child()
    for target in targets:
        assert sum(in_flight(target, now=0.0).values()) == 0


def test_a_balancer_that_is_dropped_is_forgotten() -> None:
    """The fork hook knows every balancer, and must not keep one alive."""
    target = balancer()
    look(target, ABC, now=0.0)
    reference = weakref.ref(target)
    del target
    gc.collect()
    assert reference() is None


# -- time and unusual operations ----------------------------------------------------------------


def test_a_group_is_looked_at_again_after_ten_milliseconds() -> None:
    target = balancer()
    now = answer(target, AB, now=0.0)
    look(target, AB, now=now)
    target.update(AB)
    now = answer(target, ["a"], now=now, rtt=3 * MS, times=1)
    assert look(target, AB, now=now + 0.02) in AB
    assert target.snapshot(now=now)["a"].peak_rtt == pytest.approx(3 * MS)


def test_a_blocking_read_that_is_given_up_proves_nothing() -> None:
    """Nobody knows what it usually takes: 60 s of waiting are no latency."""
    target = balancer()
    now = answer(target, AB, now=0.0, operation="get")
    look(target, AB, now=now)
    target.begin("a", now=now, operation="blpop").done(Outcome.CANCELLED, now=now + 60.0)
    assert target.snapshot(now=now + 60.0)["a"].peak_rtt == pytest.approx(MS)


def test_the_size_of_a_batch_is_part_of_its_kind() -> None:
    """Batches of 100 that take 20 ms beside single commands of 1 ms: everyone stays."""
    target = balancer(LoadBalancingStrategy.HYBRID)

    def service(endpoint: Hashable, now: float) -> tuple[float, Outcome]:
        return MS, Outcome.SUCCESS

    _, now = closed_loop(target, ABC, service, now=0.0, picks=300)
    for _ in range(100):
        pick = target.acquire(ABC, now=now, units=100)
        now += 20 * MS
        pick.done(Outcome.SUCCESS, now=now)
    stats = target.snapshot(now=now)
    assert [s.ejections for s in stats.values()] == [0, 0, 0]
    assert max(s.mean_rtt for s in stats.values()) == pytest.approx(MS, rel=1e-3)


def test_without_normalization_every_latency_is_itself() -> None:
    target = balancer(options=BalancerOptions(normalize=False))
    answer(target, ["a"], now=0.0, operation="get", times=1)
    answer(target, ["a"], now=0.0, operation="scan", rtt=1.0, times=1)
    assert target.snapshot(now=1.0)["a"].peak_rtt == 1.0


# -- probes ---------------------------------------------------------------------------------


def out_and_due(strategy: LoadBalancingStrategy) -> LoadBalancer:
    """Return a balancer where "b" is out and has to be tried again at 60 seconds."""
    target = balancer(strategy)
    now = answer(target, ABC, now=0.0)
    look(target, ABC, now=now)
    fail(target, "b", now=now)
    assert ejected(target, now=now) == {"b"}
    return target


STRATEGIES_THAT_EJECT = [
    LoadBalancingStrategy.LATENCY_BASED,
    LoadBalancingStrategy.LATENCY_BASED_REPLICAS,
    LoadBalancingStrategy.HYBRID,
]


@pytest.mark.parametrize("strategy", STRATEGIES_THAT_EJECT)
def test_a_request_that_must_not_fail_tries_nobody_out(strategy: LoadBalancingStrategy) -> None:
    target = out_and_due(strategy)
    picks = [target.acquire(ABC, now=60.0 + index, probes=False) for index in range(20)]
    assert not any(pick.is_probe or pick.endpoint == "b" for pick in picks)
    assert target.snapshot(now=80.0)["b"].probes == 0
    pick = target.acquire(ABC, now=80.0)
    assert (pick.endpoint, pick.is_probe) == ("b", True), "it is still due"


def test_nobody_without_an_answer_is_explored_by_a_request_that_tells_nothing() -> None:
    target = balancer(LoadBalancingStrategy.LATENCY_BASED)
    answer(target, "a", now=0.0)
    picks = [target.acquire(AB, now=1.0, probes=False) for _ in range(3)]
    assert {pick.endpoint for pick in picks} == {"a"}
    assert target.acquire(AB, now=1.0).is_probe
