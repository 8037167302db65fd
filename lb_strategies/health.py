"""Who leaves the pool, and how it comes back.

Sources: outlier rule and half-open return after the DataStax drivers' latency awareness and
linkerd's breaker; error rules after Finagle's failure accrual (5 in a row, or under 80 % over
30 s); "how many are out" is checked after the increment (Envoy issue 27066). The median is
the *low* one: with two endpoints x > 2 x median(x, y) can otherwise never hold.

An endpoint in the pool that loses every comparison is no better off than an ejected one: its
peak would keep it out for decay x ln(peak / usual), which is half a minute after one pause.
So it is *explored*: tried with one request, at first soon, then with growing delays.
"""

from __future__ import annotations

import random
from itertools import islice
from math import exp, inf
from statistics import median_low
from typing import TYPE_CHECKING, Final

from .endpoint import Ejection, EndpointState
from .group import Assessment, Group

if TYPE_CHECKING:
    from .journal import Journal
    from .options import BalancerOptions
    from .pick import Pick

_CHECK_INTERVAL: Final = 0.010  # seconds between looks at a whole group
_REVIEW_INTERVAL: Final = 0.250  # ... if nothing is going on: medians move slowly
_OLDEST_LOOKED_AT: Final = 4  # a long scan in front must not hide a hung request behind it
_LEAST_PROBE_COST: Final = 10.0  # waiting 10 x its cost keeps probing under a tenth of the time


class Health:
    """The rules; all state is in the endpoints.

    Args:
        options: thresholds and intervals.
        rng: for the jitter of probes.
        journal: is told who leaves and who returns.
        ejects: whether endpoints leave the pool at all.
        explores: whether the policy may pass over an endpoint for long, so that it has to be
            tried now and then ...
        remembers: ... also when our own estimates say that it is as good as the others,
            because the policy goes by estimates of its own.
    """

    def __init__(
        self,
        options: BalancerOptions,
        rng: random.Random,
        journal: Journal,
        *,
        ejects: bool,
        explores: bool,
        remembers: bool,
    ) -> None:
        self._options = options
        self._rng = rng
        self._journal = journal
        self._ejects = ejects
        self._explores = explores
        self._remembers = remembers

    # -- what time and comparison tell ------------------------------------------------------

    def assess(self, group: Group, now: float) -> Assessment:
        """Look at the whole group; changes nothing. O(n log n)."""
        states = group.states
        median = self._median(states)
        hung = self._hung(states, median, now)
        excess = len(hung) - self._room(states)
        spared = self._outliers_out(states)[:excess] if excess > 0 else ()
        pool = tuple(s for s in states if (s.ejected_for is None or s in spared) and s not in hung)
        probe = self._due(states, pool, now)
        if self._explores:
            # Those without an answer are explored, one request at a time, and not drawn.
            pool = tuple(s for s in pool if s.samples) or pool
        return Assessment(
            median=median,
            hung=hung,
            spared=spared,
            pool=pool or states,  # an empty pool serves everyone
            panic=not pool,
            probe=probe,
        )

    def check(self, group: Group, now: float) -> None:
        """Bring the group up to `now`: medians, hung endpoints, pool, due probe."""
        if group.reviewed_at <= now < group.review_at and self._is_quiet(group, now):
            group.extend(now, now + _CHECK_INTERVAL)
        else:
            self._review(group, now)

    def _is_quiet(self, group: Group, now: float) -> bool:
        """Whether nothing can have come due since the last look: a few instructions each."""
        for state in group.states:
            if state.ejected_for is not None:
                if state.probe is None and now >= state.probe_at:
                    return False
            elif not (state.is_settled if self._explores else state.is_calm):
                return False  # one that does not tie may be due to be explored
            elif state.in_flight:
                oldest = next(iter(state.open_picks))
                if now - oldest.started_at > self._options.hung_ratio * state.prior:
                    return False
        return True

    def _review(self, group: Group, now: float) -> None:
        assessment = self.assess(group, now)
        options = self._options
        prior = options.initial_rtt if assessment.median is None else assessment.median
        has_peers = len(group.states) > 1
        for state in group.states:
            if has_peers or state.group is None:
                state.group = group  # one alone has nothing to be compared with
            state.assume(prior)
            state.mark_counts(now)
            if state.in_flight:
                age = self._age(state, now)
                state.hung_age = age if age > options.hung_ratio * prior else 0.0
            else:
                state.hung_age = 0.0
        group.adopt(assessment, now, now + _CHECK_INTERVAL)
        for state in assessment.spared:
            self._spare(state, group, now)
        for state in assessment.hung:
            self._eject(state, group, Ejection.HUNG, now)
        if not self._remembers:  # a policy with estimates of its own wants every answer
            self._settle(group, now)
            group.reviewed_at, group.review_at = now, now + _REVIEW_INTERVAL

    def _settle(self, group: Group, now: float) -> None:
        """Sort out who needs no closer look until the next one at the group."""
        warm = [s for s in group.pool if s.samples]
        if not warm:
            return
        least_mean, least_peak = _least(warm, now)
        tie_to = self._options.fairness_peak_ratio * least_peak
        usual_to = self._outlier_limit(least_mean)
        if len(group.states) == 1 and warm[0].group is group:
            usual_to = tie_to = inf  # it is picked anyway, whatever it is like
        for state in warm:
            if self._is_remarkable(state):
                state.unsettle()
            else:
                state.settle(
                    ties=not self._loses(state, least_mean, least_peak, now),
                    usual_to=usual_to,
                    tie_to=tie_to,
                )

    @staticmethod
    def _is_remarkable(state: EndpointState) -> bool:
        return bool(
            state.ejected_for is not None
            or state.probe is not None
            or state.probe_delay
            or state.outliers
            or state.consecutive_failures
            or state.hung_age
        )

    def prior(self, states: tuple[EndpointState, ...]) -> float:
        """Return what to expect of an endpoint that has not been heard of lately, in seconds."""
        median = self._median(states)
        return self._options.initial_rtt if median is None else median

    @staticmethod
    def _median(states: tuple[EndpointState, ...]) -> float | None:
        logs = [s.mean.log for s in states if s.samples]
        return exp(median_low(logs)) if logs else None

    def _hung(
        self, states: tuple[EndpointState, ...], median: float | None, now: float
    ) -> tuple[EndpointState, ...]:
        if median is None or not self._ejects:
            return ()
        limit = max(self._options.hung_ratio * median, self._options.hung_floor)
        ages = [(self._age(s, now), s) for s in states if s.in_flight and s.ejected_for is None]
        if not ages:
            return ()
        old = sorted((p for p in ages if p[0] > limit), key=lambda p: p[0], reverse=True)
        return tuple(s for _, s in old[: self._room(states) + len(self._outliers_out(states))])

    @staticmethod
    def _outliers_out(states: tuple[EndpointState, ...]) -> tuple[EndpointState, ...]:
        """Return those out for latency, the mildest first: they make room for a hung one."""
        out = [s for s in states if s.ejected_for is Ejection.LATENCY]
        return tuple(sorted(out, key=lambda s: s.mean.log))

    def _age(self, state: EndpointState, now: float) -> float:
        """Greatest age among the oldest requests, in seconds of the most common operation.

        Of those that can tell: known kinds, begun after the endpoint was last readmitted.
        """
        telling = (
            (now - pick.started_at) / pick.cost_class.scale
            for pick in list(state.open_picks)  # a copy: the collector may give a pick back
            if pick.cost_class.is_known and pick.started_at >= state.vouched_at
        )
        return max(islice(telling, _OLDEST_LOOKED_AT), default=0.0)

    def _room(self, states: tuple[EndpointState, ...]) -> int:
        """How many more may be ejected for being slower than others."""
        out = sum(s.ejected_for is not None for s in states)
        return max(0, int(len(states) * self._options.max_ejected) - out)

    def _due(
        self, states: tuple[EndpointState, ...], pool: tuple[EndpointState, ...], now: float
    ) -> EndpointState | None:
        ejected = [
            s for s in states if s.ejected_for is not None and s.probe is None and now >= s.probe_at
        ]
        if ejected:
            return min(ejected, key=lambda s: s.probe_at)
        if not self._explores or len(pool) < 2:
            return None
        warm = [s for s in pool if s.samples]
        if not warm:
            return None
        idle = [s for s in pool if not s.in_flight and now - s.picked_at >= self._explore_delay(s)]
        for state in idle:
            if not state.samples:
                return state
        if not idle:
            return None
        least_mean, least_peak = _least(warm, now)
        for state in idle:
            if self._loses(state, least_mean, least_peak, now) or (
                self._remembers and now - state.picked_at >= self._options.probe_interval
            ):
                return state
        return None

    def _loses(
        self, state: EndpointState, least_mean: float, least_peak: float, now: float
    ) -> bool:
        """Whether the fairness band would not let it tie with the best."""
        options = self._options
        return state.peak_rtt(now) > options.fairness_peak_ratio * least_peak or (
            state.mean_rtt
            > max(options.fairness_mean_ratio * least_mean, least_mean + options.fairness_slack)
        )

    def _explore_delay(self, state: EndpointState) -> float:
        if state.probe_delay:
            return state.probe_delay
        return min(self._options.explore_ratio * state.peak.value, self._options.probe_interval)

    # -- what an answer tells ---------------------------------------------------------------

    def succeeded(self, pick: Pick, rtt: float, now: float) -> None:
        """Judge a success; `rtt` is in seconds of the most common operation."""
        state = pick.state
        group = state.group
        median = state.prior if group is None or group.median is None else group.median
        limit = self._readmit_limit(median)
        if group is not None and not state.samples:
            group.stale()  # its first answer: it joins the pool, and others may be due
        if pick.is_probe:
            if rtt > max(limit, median + self._options.outlier_floor):
                self._back_off(state, rtt, now)
            elif rtt > limit:
                # Too slow to come back, too little to tell: ask again soon.
                state.probe_delay = min(self._explore_delay(state), self._options.probe_interval)
                self._schedule(state, now)
            else:
                self._readmit(state, rtt, median, now)
                return
        elif state.probe_delay and state.ejected_for is None and rtt <= limit:
            state.probe_delay = 0.0
        state.learn(rtt, now)
        if rtt <= self._options.rho * median:
            state.outliers = 0
        elif group is not None:
            state.outliers += 1
            if self._is_outlier(state, median):
                self._eject_outliers(group, now)

    def _readmit_limit(self, median: float) -> float:
        """Return how long a probe may take to convince, in seconds.

        A single request on an idle connection to an idle server takes longer than one of
        many: without an absolute allowance, half of what makes an outlier, an endpoint a
        fraction of a millisecond away could never come back.
        """
        options = self._options
        return max(options.readmit_ratio * median, median + 0.5 * options.outlier_floor)

    def _is_outlier(self, state: EndpointState, median: float) -> bool:
        options = self._options
        return (
            self._ejects
            and state.outliers >= options.outlier_streak
            and state.ejected_for is None
            and state.samples >= options.min_samples
            and state.mean_rtt > self._outlier_limit(median)
        )

    def _outlier_limit(self, median: float) -> float:
        return max(self._options.rho * median, median + self._options.outlier_floor)

    def _eject_outliers(self, group: Group, now: float) -> None:
        """Eject for latency, the worst first, as many as there is room for.

        One that is out makes room for one that is as far beyond it as it is beyond the median:
        noise on a healthy endpoint must not keep a slow one in the pool.
        """
        median = self.prior(group.states)
        outliers = [s for s in group.states if self._is_outlier(s, median)]
        outliers.sort(key=lambda s: s.mean.log, reverse=True)
        for state in outliers:
            if not self._room(group.states):
                mildest = next(iter(self._outliers_out(group.states)), None)
                if mildest is None or state.mean_rtt <= self._outlier_limit(mildest.mean_rtt):
                    return
                self._spare(mildest, group, now)
            self._eject(state, group, Ejection.LATENCY, now)

    def failed(self, pick: Pick, elapsed: float, now: float) -> float:
        """Judge a failure or a time-out that took `elapsed` seconds; return what it cost.

        That is max(elapsed, 2 x peak, penalty), capped: a fast failure is never attractive.
        """
        state = pick.state
        options = self._options
        if pick.is_probe:
            self._back_off(state, elapsed, now)
        elif state.ejected_for is None:
            # Explored it would be after its peak, but nobody should wait for it soon again.
            delay = max(options.probe_interval, _LEAST_PROBE_COST * elapsed)
            state.probe_delay = max(state.probe_delay, min(delay, options.max_probe_interval))
        rtt = max(elapsed, 2.0 * state.peak_rtt(now), options.failure_penalty)
        rtt = min(rtt, options.failure_cap)
        state.punish(rtt, elapsed, now)
        state.outliers = 0
        group = state.group
        if group is not None and self._fails(state, group, now):
            self._eject(state, group, Ejection.ERRORS, now)
        return rtt

    def _fails(self, state: EndpointState, group: Group, now: float) -> bool:
        options = self._options
        if not self._ejects or len(group.states) == 1 or state.ejected_for is not None:
            return False
        if state.consecutive_failures >= options.consecutive_failures:
            return True
        failures, successes = state.failure_counts(now)
        total = failures + successes
        return total >= options.min_requests and successes < options.min_success_rate * total

    def gave_up(self, pick: Pick, elapsed: float, now: float) -> None:
        """Judge a cancellation: the true latency is at least `elapsed`."""
        state = pick.state
        if elapsed > state.peak_rtt(now):
            state.unsettle()
            state.peak.add(elapsed, now, state.prior)
        if pick.is_probe and elapsed > self._readmit_limit(state.prior):
            self._back_off(state, elapsed, now)  # whoever waits no longer cannot be convinced

    # -- transitions ------------------------------------------------------------------------

    def _eject(self, state: EndpointState, group: Group, reason: Ejection, now: float) -> None:
        """Take `state` out of the pool; the first probe is due after `probe_interval`."""
        if state.probe is not None:
            state.probe.is_probe = False  # begun before this, it is a straggler now
            state.probe = None
        state.unsettle()
        state.ejected_for = reason
        state.ejected_at = now
        state.ejections[reason] += 1
        state.probe_delay = self._options.probe_interval
        self._schedule(state, now)
        group.stale()
        self._journal.ejected(
            state,
            group.states,
            median=self.prior(group.states),
            oldest=self._age(state, now),
            now=now,
        )

    def _spare(self, state: EndpointState, group: Group, now: float) -> None:
        """Let an outlier back in, as slow as it is, because another endpoint is far worse."""
        self._journal.spared(state, group.states, now=now)
        state.ejected_for = None
        state.returns += 1
        state.outliers = 0
        group.stale()

    def _readmit(self, state: EndpointState, rtt: float, median: float, now: float) -> None:
        """Let `state` compete again after a probe that took `rtt`.

        One answer can show that it is no worse than its peers, not that it is better: with
        less than their usual mean and peak it would win every comparison for a while.
        """
        peaks = (
            []
            if state.group is None
            else [
                s.peak_rtt(now)
                for s in state.group.states
                if s is not state and s.samples and s.ejected_for is None
            ]
        )
        # Within the allowance it says nothing about the usual.
        usual = rtt if rtt <= self._options.readmit_ratio * median else median
        state.restart(
            # What it was usually is no reason to take it for worse, where most others are slow.
            mean=min(max(usual, median), state.mean_rtt),
            peak=max(usual, median_low(peaks)) if peaks else usual,
            now=now,
        )
        if state.ejected_for is not None:
            states = (state,) if state.group is None else state.group.states
            self._journal.returned(state, states, rtt=rtt, median=median, now=now)
            state.ejected_for = None
            state.returns += 1
            state.vouched_at = now
            state.forgive()
        state.outliers = 0
        state.probe_delay = 0.0
        if state.group is not None:
            state.group.stale()

    def _back_off(self, state: EndpointState, cost: float, now: float) -> None:
        """Put off the next probe after one that took `cost` seconds and did not convince."""
        options = self._options
        delay = max(2.0 * self._explore_delay(state), _LEAST_PROBE_COST * cost)
        state.unsettle()
        state.probe_delay = min(delay, options.max_probe_interval)
        self._schedule(state, now)

    def _schedule(self, state: EndpointState, now: float) -> None:
        jitter = self._options.probe_jitter * (2.0 * self._rng.random() - 1.0)
        state.probe_at = now + state.probe_delay * (1.0 + jitter)


def _least(states: list[EndpointState], now: float) -> tuple[float, float]:
    """Return the least (mean, peak) of `states`, in seconds."""
    return min([s.mean_rtt for s in states]), min([s.peak_rtt(now) for s in states])
