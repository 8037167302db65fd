"""Every tunable of the balancer, with its default and where the default comes from."""

import math
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class BalancerOptions:
    """Options of a `LoadBalancer`; validated here, once.

    All durations are seconds, all ratios plain numbers. The defaults suit request rates from
    a few to many thousand a second; most users need none of them.

    Args:
        decay: time constant of both latency estimates, > 0. Finagle, linkerd and brpc: 10 s.
        initial_rtt: assumed round trip while no endpoint has answered, > 0. linkerd: 30 ms.
        choices: how many distinct endpoints a pick compares, an int >= 2. Mitzenmacher: 2.
        scan_limit: among at most this many endpoints a pick compares all of them if what it drew
            is slower than usual, an int >= 0: with two slow ones of three, chance draws both.
        fairness_mean_ratio: means within this ratio are a tie, > 1.
        fairness_slack: ... or this close to each other, in seconds, >= 0: within a host or a
            rack the ratio of two means is noise.
        fairness_peak_ratio: ... as long as the peaks are within this one, > 1.
        failure_penalty: least latency a failure is recorded with, > 0. linkerd: 5 s.
        failure_cap: most latency a failure is recorded with, >= `failure_penalty`. brpc: 30 s.
        rho: an endpoint whose mean exceeds rho x the low median is an outlier, > 1.
        outlier_floor: ... and exceeds it by this much, >= 0: on loopback twice is noise.
        outlier_streak: ... in this many samples in a row, an int >= 1.
        min_samples: ... with at least this many samples in all, an int >= 1.
        max_ejected: share of the candidates that latency may eject, in (0, 1).
        consecutive_failures: failures in a row that eject, an int >= 1. Finagle: 5.
        min_success_rate: success rate below which an endpoint is ejected, in (0, 1).
            Finagle: 0.8 over 30 s.
        success_window: length of the window of that rate, > 0.
        min_requests: ... with at least this many requests in it, an int >= 1.
        hung_ratio: an in-flight request older than this x the median marks the endpoint as
            hung, > 1. A lower bound of 2 made 281 ejections in 60 s where one was due.
        hung_floor: ... if it is also older than this, >= 0.
        probe_interval: time from an ejection to the first probe, > 0; doubles after a failed one.
        max_probe_interval: ... up to this, >= `probe_interval`. DataStax drivers: 10 s.
        probe_jitter: relative random spread of the two, in [0, 1).
        readmit_ratio: a probe within this ratio of the median readmits, > 1; below `rho`, so
            that an endpoint on the border does not flap.
        explore_ratio: an endpoint that lost every comparison for this x its own peak is tried
            again with one request, > 1.
        normalize: divide each latency by the usual cost of its operation.
        max_classes: how many operations are told apart, an int >= 1.
        temperature: of the BOLTZMANN strategy, > 0. The paper: 1 ms.
        boltzmann_weight: of a new sample in the BOLTZMANN strategy, in (0, 1]. The paper: 0.3.

    Raises:
        ValueError: a value is outside its range, NaN or infinite.
        TypeError: a value is not a number (or, for `normalize`, not a bool).
    """

    decay: float = 10.0
    initial_rtt: float = 0.030
    choices: int = 2
    scan_limit: int = 5
    fairness_mean_ratio: float = 1.25
    fairness_slack: float = 0.0001
    fairness_peak_ratio: float = 4.0
    failure_penalty: float = 5.0
    failure_cap: float = 30.0
    rho: float = 2.0
    outlier_floor: float = 0.0005
    outlier_streak: int = 3
    min_samples: int = 10
    max_ejected: float = 0.5
    consecutive_failures: int = 5
    min_success_rate: float = 0.8
    success_window: float = 30.0
    min_requests: int = 10
    hung_ratio: float = 8.0
    hung_floor: float = 0.050
    probe_interval: float = 1.0
    max_probe_interval: float = 10.0
    probe_jitter: float = 0.1
    readmit_ratio: float = 1.5
    explore_ratio: float = 2.0
    normalize: bool = True
    max_classes: int = 64
    temperature: float = 0.001
    boltzmann_weight: float = 0.3

    def __post_init__(self) -> None:
        for field in fields(self):
            self._check(field.name, getattr(self, field.name))
        self._check_order("failure_cap", "failure_penalty")
        self._check_order("max_probe_interval", "probe_interval")
        self._check_order("rho", "readmit_ratio")

    def _check(self, name: str, value: object) -> None:
        if name == "normalize":
            if not isinstance(value, bool):
                raise TypeError(f"normalize must be a bool, got {value!r}")
            return
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(f"{name} must be a number, got {value!r}")
        if name in _INTEGERS:
            if not isinstance(value, int):
                raise TypeError(f"{name} must be an int, got {value!r}")
            if value < _INTEGERS[name]:
                raise ValueError(f"{name} must be at least {_INTEGERS[name]}, got {value!r}")
            return
        if not math.isfinite(value):
            raise ValueError(f"{name} must be finite, got {value!r}")
        if name in _RATIOS and value <= 1:
            raise ValueError(f"{name} must be greater than 1, got {value!r}")
        if name in _MAY_BE_ZERO and value < 0:
            raise ValueError(f"{name} must not be negative, got {value!r}")
        if name not in _MAY_BE_ZERO and value <= 0:
            raise ValueError(f"{name} must be greater than 0, got {value!r}")
        if name in _BELOW_ONE and value >= 1:
            raise ValueError(f"{name} must be less than 1, got {value!r}")
        if name == "boltzmann_weight" and value > 1:
            raise ValueError(f"{name} must be at most 1, got {value!r}")

    def _check_order(self, larger: str, smaller: str) -> None:
        low, high = getattr(self, smaller), getattr(self, larger)
        if high < low:
            raise ValueError(f"{larger} must be at least {smaller} ({low!r}), got {high!r}")


_INTEGERS = {
    "choices": 2,
    "scan_limit": 0,
    "outlier_streak": 1,
    "min_samples": 1,
    "consecutive_failures": 1,
    "min_requests": 1,
    "max_classes": 1,
}
_RATIOS = {
    "fairness_mean_ratio",
    "fairness_peak_ratio",
    "rho",
    "hung_ratio",
    "readmit_ratio",
    "explore_ratio",
}
_MAY_BE_ZERO = {"fairness_slack", "outlier_floor", "hung_floor", "probe_jitter"}
_BELOW_ONE = {"max_ejected", "min_success_rate", "probe_jitter"}
