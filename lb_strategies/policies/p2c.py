"""Power of two choices over peak-EWMA load, with a fairness band.

Sources: Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing" (2001), for
the rule; Finagle's ``P2CPeakEwma`` for the load, peak x (in-flight + 1). The band is ours:
HAProxy, Cassandra's badness threshold and MongoDB's latency window serve the same end.
"""

import random
from collections.abc import Sequence
from functools import reduce
from math import log

from ..policy import Candidate


class PowerOfTwoChoices:
    """Draw `choices` distinct candidates and take the least loaded.

    Args:
        choices: how many to draw, >= 2; all of them when there are no more.
        mean_ratio: with equal in-flight, means within this ratio are a tie, > 1 ...
        mean_slack: ... or this close to each other, in seconds, >= 0 ...
        peak_ratio: ... if the peaks are within this one, > 1. A tie goes to the least
            recently picked: strictly ordered loads would give three equal endpoints and one
            worker the shares 2/3, 1/3 and 0.
        scan_limit: among at most this many candidates, all are compared when the better of
            those drawn does not tie with the best, >= 0. Otherwise two slow ones of three
            would keep a third of the requests, as two slow ones are then drawn together
            (brpc issue 3340).
    """

    may_starve = True

    def __init__(
        self,
        choices: int = 2,
        *,
        mean_ratio: float = 1.25,
        mean_slack: float = 0.0,
        peak_ratio: float = 4.0,
        scan_limit: int = 0,
    ) -> None:
        self._choices = choices
        self._log_mean_ratio = log(mean_ratio)
        self._mean_slack = mean_slack
        self._peak_ratio = peak_ratio
        self._scan_limit = scan_limit

    def choose(self, candidates: Sequence[Candidate], now: float, rng: random.Random) -> Candidate:
        """Return the best of the drawn ones."""
        count = len(candidates)
        if count == 1:
            return candidates[0]
        if self._choices == 2:
            # An ordered pair of distinct indexes from one draw: the second from what the first
            # leaves of it. As the order is random too, "the first" is a fair way out of a tie.
            point = rng.random() * count
            first = int(point)
            second = int((point - first) * (count - 1))
            if second >= first:
                second += 1
            a, b = candidates[first], candidates[second]
            if a.is_settled and b.is_settled and a.in_flight == b.in_flight:
                return a if a.last_pick <= b.last_pick else b  # in the band, no need to look
            best = self._better(a, b, now)
            if best.is_settled or count > self._scan_limit:
                return best
            return reduce(lambda best, other: self._better(best, other, now), candidates, best)
        # A sample of all is a scan from a random order, so equal loads do not herd.
        drawn = rng.sample(candidates, min(self._choices, count))
        return reduce(lambda best, other: self._better(best, other, now), drawn)

    def _better(self, a: Candidate, b: Candidate, now: float) -> Candidate:
        if a.in_flight == b.in_flight:
            ratio = a.log_mean - b.log_mean
            if (
                -self._log_mean_ratio <= ratio <= self._log_mean_ratio
                or abs(a.mean_rtt - b.mean_rtt) <= self._mean_slack
            ):
                peak_a, peak_b = a.peak_rtt(now), b.peak_rtt(now)
                if peak_a <= self._peak_ratio * peak_b and peak_b <= self._peak_ratio * peak_a:
                    return a if a.last_pick <= b.last_pick else b
        return a if a.load(now) <= b.load(now) else b
