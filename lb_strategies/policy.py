"""What a policy sees and what it must do: the seam for a rule of your own."""

import random
from collections.abc import Hashable, Sequence
from typing import Protocol, runtime_checkable


class Candidate(Protocol):
    """One endpoint as a policy sees it; read it, never change it."""

    @property
    def endpoint(self) -> Hashable:
        """The endpoint itself, as the caller handed it in."""
        ...

    @property
    def in_flight(self) -> int:
        """Requests begun and not done, >= 0."""
        ...

    @property
    def last_pick(self) -> int:
        """Sequence number of its last pick; 0 if it was never picked."""
        ...

    @property
    def log_mean(self) -> float:
        """Natural logarithm of `mean_rtt`."""
        ...

    @property
    def mean_rtt(self) -> float:
        """Robust average round trip in seconds, > 0; the prior while there is no answer."""
        ...

    @property
    def consecutive_failures(self) -> int:
        """Failures since the last success, >= 0."""
        ...

    @property
    def is_cold(self) -> bool:
        """Whether it has not answered yet."""
        ...

    @property
    def is_settled(self) -> bool:
        """Whether it tied with the best of its peers at the last look, and still does."""
        ...

    def peak_rtt(self, now: float) -> float:
        """Peak-sensitive round trip at `now`, in seconds, > 0."""
        ...

    def load(self, now: float) -> float:
        """Peak round trip x (in-flight + 1); a busy cold endpoint is dearer than any other."""
        ...


@runtime_checkable
class Policy(Protocol):
    """The rule of choice; give an instance wherever a strategy is accepted.

    A policy needs no lock: the balancer calls it inside its own. It must not wait, log, or
    call back. Three optional attributes are honoured: ``ignores_health = True`` hands it every
    candidate and ejects none; ``may_starve = True`` lets the balancer try an endpoint again
    that the policy has passed over for long; a method ``observe(candidate, rtt, success)`` is
    told of each sample (seconds). `lb_strategies.testing.check_policy` tests an implementation.
    """

    def choose(self, candidates: Sequence[Candidate], now: float, rng: random.Random) -> Candidate:
        """Return one of `candidates` (never empty, no order promised).

        It must be pure but for drawing from `rng`: calling it does not mean that a request
        follows.
        """
        ...
