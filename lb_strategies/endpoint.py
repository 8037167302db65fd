"""The record of one endpoint: its load, its latency, its health counters."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from .estimators import MeanEwma, PeakEwma
from .window import SuccessWindow

if TYPE_CHECKING:
    from .group import Group
    from .operations import CostClass
    from .options import BalancerOptions
    from .pick import Pick

_BUSY_COLD_LOAD: Final = 1e9  # dearer than any latency, and still ordered by in-flight
_LEARN_INTERVAL: Final = 0.010  # seconds in which usual answers add nothing to what is known


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
    Reasons are "latency", "errors" and "hung"; `ejections_for` has all of them.
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
    ejections_for: Mapping[str, int]
    returns: int
    probes: int


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
        "ejected_at",
        "ejected_for",
        "ejections",
        "endpoint",
        "failures",
        "group",
        "hung_age",
        "in_flight",
        "is_calm",
        "is_cold",
        "is_settled",
        "last_pick",
        "learn_at",
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
        "returns",
        "samples",
        "successes",
        "tie_to",
        "timeouts",
        "usual_from",
        "usual_to",
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
        self.is_cold = True
        """Whether no answer has taught a latency yet."""
        self.class_means: dict[CostClass, float] = {}
        self.vouched_at = float("-inf")
        """When it was last readmitted: it has shown not to hang with the requests of before."""
        self.hung_age = 0.0
        """Age of the oldest request in flight, in seconds; 0 while it is unsuspicious."""
        # While nothing is remarkable, an answer is not worth more than a glance (see `settle`).
        self.is_calm = self.is_settled = False
        self.usual_from = self.usual_to = self.tie_to = 0.0
        self.learn_at = float("-inf")
        # Health.
        self.outliers = 0
        self.consecutive_failures = 0
        self.window = SuccessWindow(options.success_window)
        self.ejected_for: Ejection | None = None
        self.ejected_at = float("-inf")
        self.probe: Pick | None = None
        self.probe_at = float("-inf")
        self.probe_delay = 0.0
        # Counters for the user.
        self.picks = self.successes = self.failures = self.timeouts = self.cancellations = 0
        self.ejections = dict.fromkeys(Ejection, 0)
        self.returns = self.probes = 0
        self.assume(options.initial_rtt)

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

    def failure_counts(self, now: float) -> tuple[int, int]:
        """Return the (failures, successes) of the window that ends at `now`."""
        return self.window.counts(now, self.failures + self.timeouts, self.successes)

    def mark_counts(self, now: float) -> None:
        """Keep the window up to date."""
        if now >= self.window.next_at:
            self.window.mark(now, self.failures + self.timeouts, self.successes)

    def forgive(self) -> None:
        """Forget the failures so far."""
        self.window.reset(self.failures + self.timeouts, self.successes)

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
            self.is_cold = False
        self.samples += 1
        if self.is_calm:
            if rtt > self.tie_to:
                self.unsettle()
            else:
                self.learn_at = now + _LEARN_INTERVAL

    def settle(self, *, ties: bool, usual_to: float, tie_to: float) -> None:
        """Note that nothing speaks against it.

        Until that changes, of the answers between half its mean and `usual_to` one in 10 ms is
        learned, and two that tie with the best of their peers need no closer comparison.

        Args:
            ties: whether it does.
            usual_to: the longest round trip that is nothing remarkable, in seconds.
            tie_to: the longest that does not end a tie, in seconds.
        """
        self.is_calm = True
        self.is_settled = ties
        self.usual_from = 0.5 * self.mean.value
        self.usual_to = min(usual_to, tie_to)
        self.tie_to = tie_to

    def unsettle(self) -> None:
        """Note that it needs a closer look, at every answer."""
        self.is_calm = self.is_settled = False
        self.learn_at = float("-inf")

    def punish(self, rtt: float, elapsed: float, now: float) -> None:
        """Learn a failure: `rtt` carries its penalty, `elapsed` is what it really took.

        The mean only ever rises by it: what a failure says of an endpoint is for the error
        rules to judge, and a fast one must not look attractive.
        """
        self.unsettle()
        if self.samples:
            self.peak.add(rtt, now, self.prior)
            self.mean.add(max(elapsed, self.mean.value), now)
        else:
            self.peak.reset(rtt, now)
            self.samples = 1
            self.is_cold = False

    def restart(self, *, mean: float, peak: float, now: float) -> None:
        """Forget what was; start from these estimates, in seconds."""
        self.unsettle()
        self.peak.reset(peak, now)
        self.mean.reset(mean, now)
        self.samples += 1
        self.is_cold = False

    def rescale(self, factor: float) -> None:
        """Express the estimates in another unit of cost."""
        self.unsettle()
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
        out_for = self.ejected_for
        return EndpointStats(
            in_flight=self.in_flight,
            picks=self.picks,
            successes=self.successes,
            failures=self.failures,
            timeouts=self.timeouts,
            cancellations=self.cancellations,
            peak_rtt=self.peak_rtt(now, prior) if self.samples else prior,
            mean_rtt=self.mean.value if self.samples else prior,
            ejected=out_for is not None,
            ejected_for=None if out_for is None else out_for.value,
            ejections=sum(self.ejections.values()),
            ejections_for={reason.value: n for reason, n in self.ejections.items()},
            returns=self.returns,
            probes=self.probes,
        )
