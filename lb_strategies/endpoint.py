"""The record of one endpoint: its load, its latency, its health counters."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from .estimators import MeanEwma, PeakEwma

if TYPE_CHECKING:
    from .group import Group
    from .operations import CostClass
    from .options import BalancerOptions
    from .pick import Pick

_BUSY_COLD_LOAD: Final = 1e9  # dearer than any latency, and still ordered by in-flight
_BUCKETS: Final = 30  # of the success window: a second each by default


class Ejection(Enum):
    """Why an endpoint is out of the pool."""

    LATENCY = "latency"
    ERRORS = "errors"
    HUNG = "hung"


@dataclass(frozen=True, slots=True)
class EndpointStats:
    """What is known of one endpoint; a copy that later events do not change.

    The counters count requests since the endpoint was added; `peak_rtt` and `mean_rtt` are
    seconds of the most common operation, > 0; `ejected_for` is None while it is in the pool.
    """

    in_flight: int
    picks: int
    successes: int
    failures: int
    timeouts: int
    cancellations: int
    peak_rtt: float
    mean_rtt: float
    ejected: bool
    ejected_for: str | None
    ejections: int
    probes: int


class SuccessWindow:
    """Exact counts of successes and failures over a sliding window.

    Counts and not a moving average: a burst of failures gives each sample of an average
    almost no weight and can hide a total outage (linkerd's reason).
    """

    __slots__ = ("_bucket_length", "_counts", "_current", "_ends_at")

    def __init__(self, length: float) -> None:
        self._bucket_length = length / _BUCKETS
        self._counts: list[list[int]] = [[0, 0]]
        self._current = self._counts[0]
        self._ends_at = float("-inf")

    def add(self, success: bool, now: float) -> None:
        """Count one request."""
        if now >= self._ends_at:
            self._roll(now)
        self._current[success] += 1

    def totals(self, now: float) -> tuple[int, int]:
        """Return (failures, successes) of the window that ends at `now`."""
        if now >= self._ends_at:
            self._roll(now)
        return sum(c[0] for c in self._counts), sum(c[1] for c in self._counts)

    def reset(self) -> None:
        """Forget all counts."""
        self._current = [0, 0]
        self._counts = [self._current]

    def _roll(self, now: float) -> None:
        passed = (now - self._ends_at) / self._bucket_length
        if passed < _BUCKETS:
            for _ in range(int(passed)):
                self._counts.append([0, 0])
            self._ends_at += (int(passed) + 1) * self._bucket_length
        else:
            self._counts.clear()
            self._ends_at = now + self._bucket_length
        self._current = [0, 0]
        self._counts.append(self._current)
        del self._counts[:-_BUCKETS]


class EndpointState:
    """The mutable record of one endpoint; guarded by the balancer's lock.

    Picks hold this object and not the address, so a late answer from an endpoint that was
    removed and added again can never touch its successor.
    """

    __slots__ = (
        "__weakref__",
        "cancellations",
        "class_means",
        "consecutive_failures",
        "ejected_for",
        "ejections",
        "endpoint",
        "failures",
        "group",
        "hung_age",
        "in_flight",
        "last_pick",
        "mean",
        "open_picks",
        "outliers",
        "peak",
        "picked_at",
        "picks",
        "prior",
        "probe",
        "probe_at",
        "probe_delay",
        "probes",
        "samples",
        "successes",
        "timeouts",
        "vouched_at",
        "window",
    )

    def __init__(self, endpoint: Hashable, options: BalancerOptions) -> None:
        self.endpoint = endpoint
        self.group: Group | None = None
        """The candidates it was last compared with, itself among them; None if never."""
        # Load.
        self.in_flight = 0
        self.open_picks: dict[Pick, None] = {}  # oldest first
        self.last_pick = 0
        self.picked_at = float("-inf")
        # Latency.
        self.peak = PeakEwma(options.decay)
        self.mean = MeanEwma(options.decay)
        self.prior = options.initial_rtt
        self.samples = 0
        self.class_means: dict[CostClass, float] = {}
        self.vouched_at = float("-inf")
        """When it was last readmitted: it has shown not to hang with the requests of before."""
        self.hung_age = 0.0
        """Age of the oldest request in flight, in seconds; 0 while it is unsuspicious."""
        # Health.
        self.outliers = 0
        self.consecutive_failures = 0
        self.window = SuccessWindow(options.success_window)
        self.ejected_for: Ejection | None = None
        self.probe: Pick | None = None
        self.probe_at = float("-inf")
        self.probe_delay = 0.0
        # Counters for the user.
        self.picks = self.successes = self.failures = self.timeouts = self.cancellations = 0
        self.ejections = self.probes = 0
        self.assume(options.initial_rtt)

    @property
    def is_cold(self) -> bool:
        """Whether no answer has taught a latency yet."""
        return self.samples == 0

    @property
    def mean_rtt(self) -> float:
        """Robust average round trip in seconds."""
        return self.mean.value

    @property
    def log_mean(self) -> float:
        """Natural logarithm of `mean_rtt`, which is how it is stored."""
        return self.mean.log

    def peak_rtt(self, now: float, prior: float | None = None) -> float:
        """Peak-sensitive round trip at `now` in seconds; at least the age of a hung request."""
        peak = self.peak.at(now, self.prior if prior is None else prior)
        return max(peak, self.hung_age)

    def load(self, now: float) -> float:
        """Peak round trip x (in-flight + 1), in seconds."""
        in_flight = self.in_flight
        if in_flight and not self.samples:
            return _BUSY_COLD_LOAD * (in_flight + 1)
        return self.peak_rtt(now) * (in_flight + 1)

    def assume(self, prior: float) -> None:
        """Take over what its peers suggest; until the first answer it is also the estimate."""
        self.prior = prior
        if not self.samples:
            self.peak.value = prior
            self.mean.reset(prior, self.mean.updated_at)

    def learn(self, rtt: float, now: float) -> None:
        """Learn one latency, in seconds of the most common operation."""
        if self.samples:
            self.peak.add(rtt, now, self.prior)
            self.mean.add(rtt, now)
        else:
            self.peak.reset(rtt, now)
            self.mean.reset(rtt, now)
        self.samples += 1

    def punish(self, rtt: float, elapsed: float, now: float) -> None:
        """Learn a failure: `rtt` carries its penalty, `elapsed` is what it really took.

        The mean only ever rises by it: what a failure says of an endpoint is for the error
        rules to judge, and a fast one must not look attractive.
        """
        if self.samples:
            self.peak.add(rtt, now, self.prior)
            self.mean.add(max(elapsed, self.mean.value), now)
        else:
            self.peak.reset(rtt, now)
            self.samples = 1

    def restart(self, *, mean: float, peak: float, now: float) -> None:
        """Forget what was; start from these estimates, in seconds."""
        self.peak.reset(peak, now)
        self.mean.reset(mean, now)
        self.samples += 1

    def rescale(self, factor: float) -> None:
        """Express the estimates in another unit of cost."""
        self.prior *= factor
        self.peak.value *= factor
        self.mean.reset(self.mean.value * factor, self.mean.updated_at)

    def forget_requests(self) -> None:
        """Drop everything in flight: the endpoint left, or the requests are the parent's."""
        self.open_picks.clear()
        self.in_flight = 0
        self.hung_age = 0.0
        self.probe = None

    def stats(self, now: float, prior: float) -> EndpointStats:
        """Return a copy for the user; `prior` is the group's at `now`."""
        reason = self.ejected_for
        return EndpointStats(
            in_flight=self.in_flight,
            picks=self.picks,
            successes=self.successes,
            failures=self.failures,
            timeouts=self.timeouts,
            cancellations=self.cancellations,
            peak_rtt=self.peak_rtt(now, prior) if self.samples else prior,
            mean_rtt=self.mean.value if self.samples else prior,
            ejected=reason is not None,
            ejected_for=None if reason is None else reason.value,
            ejections=self.ejections,
            probes=self.probes,
        )
