"""The state machine: choose, count, learn."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from math import inf, isfinite
from typing import Any, cast

from .endpoint import EndpointState, EndpointStats
from .estimators import LEAST_RTT
from .forks import renew_after_fork
from .group import Group
from .health import Health
from .journal import Journal
from .membership import Endpoint, Membership, as_tuple, distinct
from .operations import CostClasses
from .options import BalancerOptions
from .pick import Outcome, Pick
from .policies import make_policy
from .policy import Policy
from .strategy import LoadBalancingStrategy


class LoadBalancer:
    """Chooses endpoints, counts what is in flight, and learns how fast each one answers.

    It does no I/O, starts no thread and reads no clock: `now` is monotonic seconds, always
    from the same clock. One object serves any number of threads and event loops; its lock is
    held for attribute updates only. The call that finds that an endpoint leaves the pool or
    returns to it logs so, under ``lb_strategies``. After a fork the child starts with nothing
    in flight and a newly seeded generator.

    Args:
        strategy: a `LoadBalancingStrategy`, its value, or a `Policy` of your own.
        options: tunables; the defaults if None.
        rng: source of randomness; a new ``random.Random()`` if None.

    Raises:
        ValueError: unknown strategy.
        TypeError: `options` or `rng` is of another type.
    """

    def __init__(
        self,
        strategy: LoadBalancingStrategy | Policy | str,
        *,
        options: BalancerOptions | None = None,
        rng: random.Random | None = None,
    ) -> None:
        if options is not None and not isinstance(options, BalancerOptions):
            raise TypeError(f"options must be a BalancerOptions, got {options!r}")
        if rng is not None and not isinstance(rng, random.Random):
            raise TypeError(f"rng must be a random.Random, got {rng!r}")
        self.options = options if options is not None else BalancerOptions()
        self.strategy: LoadBalancingStrategy | None = None
        """The member of the enum, or None for a policy of the user's own."""
        self._choose: Callable[[Sequence[EndpointState], float, random.Random], EndpointState]
        if isinstance(strategy, Policy) and not isinstance(strategy, type):
            policy = strategy
            self._choose = _checked(policy)
        else:
            self.strategy = LoadBalancingStrategy.parse(strategy)
            policy = make_policy(self.strategy, self.options)
            self._choose = cast("Any", policy.choose)  # ours return what they were handed
        self._rng = rng if rng is not None else random.Random()
        self._observe = getattr(policy, "observe", None)
        self._journal = Journal()
        self._health = Health(
            self.options,
            self._rng,
            self._journal,
            ejects=not getattr(policy, "ignores_health", False),
            explores=getattr(policy, "may_starve", False),
            remembers=self._observe is not None,
        )
        self._classes = CostClasses(self.options.max_classes, enabled=self.options.normalize)
        self._members = Membership(self.options)
        self._states = self._members.states
        self._groups_by_id = self._members.groups_by_id
        self._sequence = 0
        # Re-entrant: the collector may close an abandoned coroutine in the middle of a pick, and
        # its `finally` gives another pick back on this very thread.
        self._lock = threading.RLock()
        # CPython re-seeds only the module's own generator in a forked child; without this,
        # pre-forked workers would choose in lock-step and keep the parent's in-flight counts.
        renew_after_fork(self)

    # -- choosing ---------------------------------------------------------------------------

    def choose(
        self,
        candidates: Iterable[Endpoint],
        *,
        now: float,
        exclude: Collection[Endpoint] = (),
        fallback: Iterable[Endpoint] = (),
    ) -> Endpoint:
        """Return the endpoint that a pick would get now; counts nothing, changes nothing.

        It does draw from the generator. Arguments and errors as for `acquire`.
        """
        _check_time(now)
        key = as_tuple(candidates)
        other = as_tuple(fallback)
        with self._lock:
            group = self._members.look_up(key)
            assessment = self._health.assess(group, now)
            probe = assessment.probe
            if probe is not None and probe.endpoint not in exclude:
                return probe.endpoint
            if other and _falls_back(group, assessment.panic, exclude, other):
                group = self._members.look_up(other)
                assessment = self._health.assess(group, now)
            return self._select(group, assessment.pool, now, exclude).endpoint

    def acquire(
        self,
        candidates: Iterable[Endpoint],
        *,
        now: float,
        operation: Hashable = None,
        units: int = 1,
        exclude: Collection[Endpoint] = (),
        fallback: Iterable[Endpoint] = (),
        probes: bool = True,
    ) -> Pick:
        """Choose one of `candidates` and count a request in flight on it.

        O(1) for LATENCY_BASED, whatever the number of candidates, if the same tuple *object*
        is handed in again; O(n) for the other strategies.

        Args:
            candidates: at least one endpoint, in any order; a tuple is fastest.
            now: monotonic time in seconds.
            operation: short label of the kind of request, such as the command's name; kinds
                are told apart when latencies are judged.
            units: how many parts the request has (commands in a pipeline), an int >= 1.
            exclude: endpoints to avoid, such as those a retry has tried; ignored if nothing
                else is left.
            fallback: candidates to choose from instead while every one of `candidates` is
                ejected or excluded; may be empty. An ejected candidate is asked before one of
                these a second time.
            probes: whether this request may be the one that tries an endpoint again; not if
                how long it takes says nothing, or if it must not fail.

        Raises:
            NoEndpointError: `candidates` is empty.
            TypeError: a candidate or the operation is not hashable, or `candidates` is a
                string.
            ValueError: `now` is not finite or `units` is less than 1.
        """
        # Most picks are a matter of the policy alone: this is all they cost.
        with self._lock:
            group = self._groups_by_id.get(id(candidates))
            if (
                group is not None
                and group.checked_at <= now < group.plain_until
                and units == 1
                and not exclude
            ):
                cost_class = self._classes.by_key.get(operation)
                if cost_class is None:
                    cost_class = self._classes.get(operation, 1, now, self._states.values())
                pool = group.pool
                state = self._choose(pool, now, self._rng) if len(pool) > 1 else pool[0]
                if len(group.states) > 1:
                    self._sequence = state.last_pick = self._sequence + 1
                state.picked_at = now
                state.picks += 1
                state.in_flight += 1
                pick = Pick(self, state, cost_class, now)
                state.open_picks[pick] = None
                return pick
        return self._acquire(candidates, now, operation, units, exclude, fallback, probes)

    def _acquire(
        self,
        candidates: Iterable[Endpoint],
        now: float,
        operation: Hashable,
        units: int,
        exclude: Collection[Endpoint],
        fallback: Iterable[Endpoint],
        probes: bool,
    ) -> Pick:
        """Pick with all that can be the matter: see `acquire`."""
        if units < 1:
            raise ValueError(f"units must be at least 1, got {units!r}")
        # An iterator is the caller's code, so it runs before the lock is taken.
        key = candidates if isinstance(candidates, tuple) else distinct(candidates)
        other = () if not fallback else as_tuple(fallback)
        with self._lock:
            group = self._groups_by_id.get(id(key)) or self._members.group(key, key is candidates)
            if not group.checked_at <= now < group.check_at:
                self._check(group, now)
            probe = group.probe if probes else None
            # Through another group it may have been sent one meanwhile.
            if probe is not None and probe.probe is None and probe.endpoint not in exclude:
                group.probe = None
                if not probe.samples:
                    group.stale()  # several may have joined at once
                probe.unsettle()
                pick = self._open(probe, operation, units, now)
                pick.is_probe = True
                probe.probe = pick
                probe.probes += 1
                state = probe
            else:
                if other and _falls_back(group, group.panic, exclude, other):
                    group = self._members.group(other, other is fallback)
                    if not group.checked_at <= now < group.check_at:
                        self._check(group, now)
                pool = group.pool
                if exclude or len(pool) == 1:
                    state = self._select(group, pool, now, exclude)
                else:
                    state = self._choose(pool, now, self._rng)
                pick = self._open(state, operation, units, now)
            if len(group.states) > 1:
                self._sequence += 1
                state.last_pick = self._sequence
            state.picked_at = now
            state.picks += 1
        if self._journal.lines:
            try:
                self._report()
            except BaseException:  # interrupted, in a handler: nobody will give this pick back
                pick.done(Outcome.REDIRECT, now=now)
                raise
        return pick

    def begin(
        self, endpoint: Endpoint, *, now: float, operation: Hashable = None, units: int = 1
    ) -> Pick:
        """Count a request in flight on an endpoint that something else chose (a redirect).

        It is no pick: fairness between endpoints is left alone. Arguments and errors as for
        `acquire`.
        """
        if units < 1:
            raise ValueError(f"units must be at least 1, got {units!r}")
        if not -inf < now < inf:
            _check_time(now)
        with self._lock:
            try:
                state = self._states[endpoint]
            except (KeyError, TypeError):
                state = self._members.state(endpoint)
            return self._open(state, operation, units, now)

    def _relabel(self, pick: Pick, operation: Hashable, units: int) -> None:
        if units < 1:
            raise ValueError(f"units must be at least 1, got {units!r}")
        with self._lock:
            pick.cost_class = self._classes.get(
                operation, units, pick.started_at, self._states.values()
            )

    def _open(self, state: EndpointState, operation: Hashable, units: int, now: float) -> Pick:
        cost_class = self._classes.by_key.get(operation) if units == 1 else None
        if cost_class is None:
            cost_class = self._classes.get(operation, units, now, self._states.values())
        pick = Pick(self, state, cost_class, now)
        state.open_picks[pick] = None
        state.in_flight += 1
        return pick

    def _select(
        self,
        group: Group,
        pool: tuple[EndpointState, ...],
        now: float,
        exclude: Collection[Endpoint],
    ) -> EndpointState:
        """Choose from the pool; from outside of it rather than a second time the same."""
        if exclude:
            left = tuple(s for s in group.states if s.endpoint not in exclude)
            pool = (
                tuple(s for s in pool if s.endpoint not in exclude)
                or tuple(s for s in left if s.ejected_for is None)  # those without an answer
                or left
                or pool
            )
        if len(pool) == 1:
            return pool[0]
        return self._choose(pool, now, self._rng)

    def _check(self, group: Group, now: float) -> None:
        _check_time(now)
        self._health.check(group, now)

    # -- learning ---------------------------------------------------------------------------

    def _finish(self, pick: Pick, outcome: Outcome, now: float, started_at: float) -> None:
        """Give `pick` back; the lock is held."""
        state = pick.state
        if pick not in state.open_picks:
            return  # done before, or forgotten when the endpoint left or by a fork
        del state.open_picks[pick]
        state.in_flight -= 1
        if state.probe is pick:
            state.probe = None
        if not state.in_flight:
            state.hung_age = 0.0
        elapsed = now - started_at
        if not LEAST_RTT <= elapsed < inf:
            if not isfinite(elapsed):
                return  # the caller's mistake, and no reason to raise in its `finally`
            elapsed = LEAST_RTT  # a clock that went back or ticks coarsely
        if outcome is Outcome.SUCCESS:
            state.successes += 1
            state.consecutive_failures = 0
            self._learn(pick, elapsed, now)
        elif outcome is Outcome.UNTIMED:
            state.successes += 1
            state.consecutive_failures = 0
        elif outcome is Outcome.FAILURE or outcome is Outcome.TIMEOUT:
            if outcome is Outcome.FAILURE:
                state.failures += 1
            else:
                state.timeouts += 1
            state.consecutive_failures += 1
            rtt = self._health.failed(pick, elapsed / pick.cost_class.scale, now)
            if self._observe is not None:
                self._observe(state, rtt, False)
        elif outcome is Outcome.CANCELLED:
            state.cancellations += 1
            if pick.cost_class.is_known:  # else waiting long may be what it does
                self._health.gave_up(pick, elapsed / pick.cost_class.scale, now)

    def _learn(self, pick: Pick, elapsed: float, now: float) -> None:
        cost_class = pick.cost_class
        was_known = cost_class.is_known
        factor = self._classes.learn(pick.state, cost_class, elapsed, now, self._states.values())
        if factor != 1.0:
            for state in self._states.values():
                state.rescale(factor)
            for group in self._members.groups.values():
                group.rescale(factor)
        if was_known:  # else there was nothing yet to compare it with
            rtt = elapsed / cost_class.scale
            self._health.succeeded(pick, rtt, now)
            if self._observe is not None:
                self._observe(pick.state, rtt, True)

    # -- membership -------------------------------------------------------------------------

    def update(self, endpoints: Iterable[Endpoint]) -> None:
        """Make `endpoints` the whole membership: what stays keeps its history.

        An endpoint that leaves is forgotten; requests still in flight on it may be given back
        and teach nothing. One that joins starts cold. Candidates never announced here join
        when they are first handed to `acquire`.

        Raises:
            TypeError: an endpoint is not hashable, or `endpoints` is a string.
        """
        members = distinct(endpoints)
        with self._lock:
            self._members.update(members)

    def snapshot(self, *, now: float) -> dict[Endpoint, EndpointStats]:
        """Return what is known of every endpoint at `now`; changes nothing."""
        _check_time(now)
        with self._lock:
            groups = {id(s.group): s.group for s in self._states.values() if s.group is not None}
            priors = {key: self._health.prior(group.states) for key, group in groups.items()}
            return {
                endpoint: state.stats(now, priors.get(id(state.group), state.prior))
                for endpoint, state in self._states.items()
            }

    def _report(self) -> None:
        """Log what has happened, unless that must wait for a call further up (see `_lock`)."""
        if not self._lock._is_owned():  # type: ignore[attr-defined]  # as threading.Condition asks
            self._journal.write()

    # -- process life -----------------------------------------------------------------------

    def _after_fork_in_child(self) -> None:
        """Start clean: the requests in flight are the parent's, and so is its randomness."""
        self._lock = threading.RLock()
        self._journal.forget()
        self._rng.seed()
        for state in self._states.values():
            state.forget_requests()


def _falls_back(
    group: Group, panic: bool, exclude: Collection[Endpoint], fallback: Collection[Endpoint]
) -> bool:
    """Whether to choose from the fallback: nobody of the group is fit for it."""
    if not exclude:
        return panic
    left = [s for s in group.states if s.endpoint not in exclude]
    if not panic and any(s.ejected_for is None for s in left):
        return False
    # One that is ejected, rather than one that was asked before.
    return not left or any(endpoint not in exclude for endpoint in fallback)


def _checked(
    policy: Policy,
) -> Callable[[Sequence[EndpointState], float, random.Random], EndpointState]:
    """Return the choice of a policy that is not ours, with a look at what it returns."""

    def choose(
        candidates: Sequence[EndpointState], now: float, rng: random.Random
    ) -> EndpointState:
        chosen = policy.choose(candidates, now, rng)
        if not isinstance(chosen, EndpointState):
            raise TypeError(f"a policy must return one of its candidates, got {chosen!r}")
        return chosen

    return choose


def _check_time(now: float) -> None:
    if not isfinite(now):
        raise ValueError(f"now must be a finite number of seconds, got {now!r}")
