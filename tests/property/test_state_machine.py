"""Any sequence of calls, against a model that only counts.

Whatever is called in whatever order, at whatever times: in-flight equals the model, reading
writes nothing, late answers never touch a successor, there is always somebody to ask, and no
more than half are out for being slower than others.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Hashable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from lb_strategies import BalancerOptions, LoadBalancer, LoadBalancingStrategy, Outcome, Pick

NAMES = "abcdef"

strategies = st.sampled_from(list(LoadBalancingStrategy))
memberships = st.lists(st.sampled_from(NAMES), min_size=1, unique=True)
outcomes = st.sampled_from(list(Outcome))
operations = st.sampled_from([None, "get", "scan", "blpop"])
units = st.sampled_from([1, 1, 1, 2, 3, 100])
excludes = st.sets(st.sampled_from(NAMES), max_size=3)
durations = st.sampled_from([0.0, 1e-9, 0.0001, 0.001, 0.002, 0.02, 0.3, 1.2, 11.0, 40.0])
leaps = st.sampled_from([0.0005, 0.002, 0.011, 0.06, 0.5, 1.2, 2.5, 12.0, 100.0, 1e9])


class Repeatable(random.Random):
    """Seeds itself with 0 where others ask the system, so that a fork can be replayed."""

    def seed(self, *args: Any, **kwargs: Any) -> None:
        """Seed."""
        super().seed(*args or (0,), **kwargs)


class Calls(RuleBasedStateMachine):
    """The candidates are always the whole membership, in any order and container."""

    bounded = True

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.open: list[Pick] = []
        self.void: list[Pick] = []
        """Picks that must have no effect: given back, or their endpoint left, or a fork."""
        self.model: Counter[Hashable] = Counter()
        self.most_out = 0

    @initialize(
        strategy=strategies,
        members=memberships,
        seed=st.integers(0, 2**32),
        normalize=st.booleans(),
        choices=st.sampled_from([2, 2, 3]),
        max_classes=st.sampled_from([1, 2, 64]),
    )
    def start(
        self,
        strategy: LoadBalancingStrategy,
        members: list[str],
        seed: int,
        normalize: bool,
        choices: int,
        max_classes: int,
    ) -> None:
        options = BalancerOptions(normalize=normalize, choices=choices, max_classes=max_classes)
        self.strategy = strategy
        self.balancer = LoadBalancer(strategy, options=options, rng=Repeatable(seed))
        self.members = members
        self.balancer.update(members)

    # -- requests -----------------------------------------------------------------------------

    def candidates(self, order: random.Random) -> list[str]:
        return order.sample(self.members, len(self.members))

    @rule(
        order=st.randoms(use_true_random=False),
        shape=st.sampled_from([tuple, list, iter, set]),
        operation=operations,
        units=units,
        exclude=excludes,
        times=st.sampled_from([1, 1, 1, 10]),
    )
    def acquire(
        self,
        order: random.Random,
        shape: type,
        operation: str | None,
        units: int,
        exclude: set[str],
        times: int,
    ) -> None:
        names = self.candidates(order)
        for _ in range(times):
            pick = self.balancer.acquire(
                shape(names), now=self.now, operation=operation, units=units, exclude=exclude
            )
            assert pick.endpoint in names
            assert pick.endpoint not in exclude or exclude >= set(names)
            self.open.append(pick)
            self.model[pick.endpoint] += 1

    @rule(index=st.integers(0), operation=operations, units=units)
    def begin(self, index: int, operation: str | None, units: int) -> None:
        endpoint = self.members[index % len(self.members)]
        pick = self.balancer.begin(endpoint, now=self.now, operation=operation, units=units)
        assert (pick.endpoint, pick.is_probe) == (endpoint, False)
        self.open.append(pick)
        self.model[endpoint] += 1

    @precondition(lambda self: self.open)
    @rule(index=st.integers(0), outcome=outcomes, took=durations)
    def done(self, index: int, outcome: Outcome, took: float) -> None:
        pick = self.open.pop(index % len(self.open))
        pick.done(outcome, now=pick.started_at + took)
        self.model[pick.endpoint] -= 1
        self.void.append(pick)

    @precondition(lambda self: self.open)
    @rule(outcome=outcomes, took=durations)
    def all_done(self, outcome: Outcome, took: float) -> None:
        while self.open:
            self.done(0, outcome, took)

    @precondition(lambda self: self.open)
    @rule(index=st.integers(0), outcome=outcomes, at=st.sampled_from([math.nan, math.inf]))
    def done_at_no_time(self, index: int, outcome: Outcome, at: float) -> None:
        pick = self.open.pop(index % len(self.open))
        pick.done(outcome, now=at)
        self.model[pick.endpoint] -= 1

    @precondition(lambda self: self.open)
    @rule(index=st.integers(0), operation=operations, units=units)
    def relabel(self, index: int, operation: str | None, units: int) -> None:
        self.open[index % len(self.open)].relabel(operation, units)

    @rule(index=st.integers(0), outcome=outcomes, times=st.integers(1, 12), took=durations)
    def many_in_a_row(self, index: int, outcome: Outcome, times: int, took: float) -> None:
        endpoint = self.members[index % len(self.members)]
        for _ in range(times):
            pick = self.balancer.begin(endpoint, now=self.now)
            pick.done(outcome, now=self.now + took)

    @precondition(lambda self: self.void)
    @rule(index=st.integers(0), outcome=outcomes, took=durations)
    def done_too_late(self, index: int, outcome: Outcome, took: float) -> None:
        before = self.balancer.snapshot(now=self.now)
        self.void[index % len(self.void)].done(outcome, now=self.now + took)
        assert self.balancer.snapshot(now=self.now) == before

    # -- everything else ----------------------------------------------------------------------

    @rule(order=st.randoms(use_true_random=False), exclude=excludes)
    def choose(self, order: random.Random, exclude: set[str]) -> None:
        before = self.balancer.snapshot(now=self.now)
        names = self.candidates(order)
        chosen = self.balancer.choose(names, now=self.now, exclude=exclude)
        assert chosen in names
        assert chosen not in exclude or exclude >= set(names)
        assert self.balancer.snapshot(now=self.now) == before

    @rule(members=memberships)
    def update(self, members: list[str]) -> None:
        before = self.balancer.snapshot(now=self.now)
        self.balancer.update(members)
        after = self.balancer.snapshot(now=self.now)
        for name in after.keys() & before.keys():
            assert after[name].in_flight == before[name].in_flight
            assert after[name].successes == before[name].successes
            assert after[name].ejected == before[name].ejected
        for name in after.keys() - before.keys():
            assert after[name].in_flight == after[name].successes == after[name].ejections == 0
        gone = set(self.members) - set(members)
        self.members = members
        self.void += [pick for pick in self.open if pick.endpoint in gone]
        self.open = [pick for pick in self.open if pick.endpoint not in gone]
        for name in gone:
            del self.model[name]
        # The healthy half may have left: that is no ejection.
        self.most_out = self.out()

    @rule(seconds=leaps)
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(seconds=leaps)
    def clock_goes_back(self, seconds: float) -> None:
        self.now -= min(seconds, self.now - 1000.0)

    @rule()
    def fork(self) -> None:
        """What a forked child runs before anything else."""
        self.balancer._after_fork_in_child()
        self.void += self.open
        self.open = []
        self.model.clear()

    # -- what holds at all times ----------------------------------------------------------------

    def out(self) -> int:
        """Return how many are out for being slower than others."""
        stats = self.balancer.snapshot(now=self.now).values()
        return sum(s.ejected_for in ("latency", "hung") for s in stats)

    @invariant()
    def in_flight_equals_the_model(self) -> None:
        stats = self.balancer.snapshot(now=self.now)
        assert stats.keys() == set(self.members)
        assert {e: s.in_flight for e, s in stats.items()} == {
            name: self.model[name] for name in self.members
        }

    @invariant()
    def reading_writes_nothing(self) -> None:
        once = self.balancer.snapshot(now=self.now)
        self.balancer.snapshot(now=self.now + 1e6)
        assert self.balancer.snapshot(now=self.now) == once

    @invariant()
    def estimates_are_positive_and_finite(self) -> None:
        for stats in self.balancer.snapshot(now=self.now).values():
            assert 0.0 < stats.mean_rtt < math.inf
            assert 0.0 < stats.peak_rtt < math.inf

    @invariant()
    def at_most_half_are_out_for_being_slower(self) -> None:
        if not self.bounded:
            return
        out = self.out()
        # Those beyond the half can only become fewer.
        self.most_out = max(len(self.members) // 2, min(self.most_out, out))
        assert out <= self.most_out

    @invariant()
    def only_policies_that_heed_health_eject(self) -> None:
        if self.strategy not in (
            LoadBalancingStrategy.LATENCY_BASED,
            LoadBalancingStrategy.LATENCY_BASED_REPLICAS,
            LoadBalancingStrategy.HYBRID,
        ):
            stats = self.balancer.snapshot(now=self.now).values()
            assert not any(s.ejections for s in stats)

    @invariant()
    def who_has_left_has_returned_or_is_out(self) -> None:
        for stats in self.balancer.snapshot(now=self.now).values():
            assert stats.ejections - stats.returns == stats.ejected
            assert sum(stats.ejections_for.values()) == stats.ejections

    @invariant()
    def every_line_is_written_at_once(self) -> None:
        assert not self.balancer._journal.lines

    def teardown(self) -> None:
        for pick in self.open:
            pick.done(Outcome.SUCCESS, now=self.now)
        for pick in self.void:
            pick.done(Outcome.FAILURE, now=self.now)
        if hasattr(self, "balancer"):
            stats = self.balancer.snapshot(now=self.now).values()
            assert all(s.in_flight == 0 for s in stats)


class CallsWithSubsets(Calls):
    """The candidates are any part of the membership, so groups overlap.

    The half is then of each group at the time of an ejection, and no bound on the whole.
    """

    bounded = False

    def candidates(self, order: random.Random) -> list[str]:
        return order.sample(self.members, order.randint(1, len(self.members)))


TestCalls = Calls.TestCase
TestCalls.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestCallsWithSubsets = CallsWithSubsets.TestCase
TestCallsWithSubsets.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
