"""What is remembered of an endpoint's latency: a peak, a mean, a plain moving average.

Sources:
    `PeakEwma`: the peak-sensitive moving average of Finagle's balancer (``PeakEwma.scala``),
    with the non-mutating read of linkerd2-proxy's ``ewma`` crate.
    `MeanEwma`: exponential average of logarithms, so that one spike of 100 x moves it by
    1.58 and not by 10.
    `SampleEwma`: the average of the MongoDB server selection specification.

None of them holds a lock or reads a clock; times and samples are seconds.
"""

from math import exp, log

LEAST_RTT = 1e-6
"""A sample below a microsecond is recorded as one: zero has no logarithm."""

_MEAN_LEAST_WEIGHT = 0.1  # samples with equal timestamps must count too
_MEAN_MOST_WEIGHT = 0.5  # an endpoint with rare traffic must not be memoryless
_MEAN_MOST_STEP = log(100.0)  # what one sample can tell, however long it took


class PeakEwma:
    """Average that jumps up to a peak at once and comes down with time.

    A sample above the decayed value replaces it, one below is blended in with weight
    1 - exp(-dt / decay). Without samples the value moves towards a *prior*, not towards zero:
    an endpoint nobody asked becomes average, not irresistible. Reading changes nothing.
    """

    __slots__ = ("decay", "updated_at", "value")

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self.value = 0.0
        self.updated_at = float("-inf")

    def at(self, now: float, prior: float = 0.0) -> float:
        """Return the value at `now`; a clock that went back counts as no time passed."""
        elapsed = now - self.updated_at
        if elapsed <= 0.0:
            return self.value
        return prior + (self.value - prior) * exp(-elapsed / self.decay)

    def add(self, rtt: float, now: float, prior: float = 0.0) -> None:
        """Learn from one sample."""
        elapsed = now - self.updated_at
        if elapsed > 0.0:
            self.updated_at = now
            weight = exp(-elapsed / self.decay)
            if rtt < prior + (self.value - prior) * weight:
                self.value = self.value * weight + rtt * (1.0 - weight)
            else:
                self.value = rtt
        elif rtt > self.value:
            self.value = rtt

    def reset(self, rtt: float, now: float) -> None:
        """Forget everything but this sample."""
        self.value = rtt
        self.updated_at = now


class MeanEwma:
    """Robust average: exponential in time, of logarithms, each step bounded.

    The weight of a sample is clamp(1 - exp(-dt / decay), 0.1, 0.5).
    """

    __slots__ = ("_few", "_many", "decay", "log", "updated_at")

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self.log = 0.0
        self.updated_at = float("-inf")
        # Beyond these gaps the clamp decides, which spares the exponential.
        self._few = -decay * log(1.0 - _MEAN_LEAST_WEIGHT)
        self._many = -decay * log(1.0 - _MEAN_MOST_WEIGHT)

    @property
    def value(self) -> float:
        """The average, in seconds."""
        return exp(self.log)

    def add(self, rtt: float, now: float) -> None:
        """Learn from one sample; the first ones initialise (see `reset`)."""
        elapsed = now - self.updated_at
        if elapsed <= self._few:
            weight = _MEAN_LEAST_WEIGHT
        elif elapsed >= self._many:
            weight = _MEAN_MOST_WEIGHT
        else:
            weight = 1.0 - exp(-elapsed / self.decay)
        if elapsed > 0.0:
            self.updated_at = now
        step = log(rtt) - self.log
        step = min(step, _MEAN_MOST_STEP)
        self.log += weight * step

    def reset(self, rtt: float, now: float) -> None:
        """Forget everything but this sample."""
        self.log = log(rtt)
        self.updated_at = now


class SampleEwma:
    """Average with a fixed weight for each new sample; the first one initialises it."""

    __slots__ = ("value", "weight")

    def __init__(self, weight: float, value: float | None = None) -> None:
        self.weight = weight
        self.value = value

    def add(self, rtt: float) -> float:
        """Learn from one sample and return the new value."""
        if self.value is None:
            self.value = rtt
        else:
            self.value += self.weight * (rtt - self.value)
        return self.value
