"""OpenTelemetry metrics of balancers: ``pip install "lb-strategies[otel]"``.

Every instrument is an observable one: it reads `EndpointStats` when a reader collects, and a
request costs nothing. Names and units follow OpenTelemetry's semantic conventions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, count
from typing import Final, Protocol, overload
from weakref import WeakKeyDictionary, ref

from . import __version__
from .balancer import LoadBalancer
from .endpoint import EndpointStats

try:
    from opentelemetry.metrics import (
        CallbackOptions,
        Meter,
        MeterProvider,
        Observation,
        get_meter_provider,
    )
except ImportError as error:
    raise ImportError(
        'lb_strategies.telemetry needs the OpenTelemetry API: pip install "lb-strategies[otel]"'
    ) from error

__all__ = ["BalancedClient", "Instrumentation", "instrument"]


class BalancedClient(Protocol):
    """A client with a balancer, such as those of `lb_strategies_redis`."""

    @property
    def load_balancer(self) -> LoadBalancer | None:
        """The balancer; None while there is none."""
        ...

    def endpoint_stats(self) -> Mapping[str, EndpointStats]:
        """Return what is known of each endpoint, by the client's own clock."""
        ...


@overload
def instrument(
    target: BalancedClient, *, name: str = "client", meter_provider: MeterProvider | None = None
) -> Instrumentation: ...
@overload
def instrument(
    target: LoadBalancer,
    *,
    clock: Callable[[], float],
    name: str = "client",
    meter_provider: MeterProvider | None = None,
) -> Instrumentation: ...
def instrument(
    target: BalancedClient | LoadBalancer,
    *,
    clock: Callable[[], float] | None = None,
    name: str = "client",
    meter_provider: MeterProvider | None = None,
) -> Instrumentation:
    """Have the endpoints of a client or balancer observed, until it is dropped.

    Doing so again with the same provider replaces what was said before.

    Args:
        target: a client with a balancer, or a balancer; not kept alive by this.
        clock: of a balancer: where its `now` comes from, in seconds; a client has its own.
        name: tells the clients of a process apart; one that is taken gets a number behind it.
        meter_provider: OpenTelemetry's; the global one if None, also if that is set later.

    Returns:
        What can be closed; it need not be kept.

    Raises:
        TypeError: `target` is neither, or `clock` is missing or too much.
    """
    if isinstance(target, LoadBalancer):
        if clock is None:
            raise TypeError("a LoadBalancer reads no clock: pass the one of its `now` as clock=")
    elif not (hasattr(target, "load_balancer") and hasattr(target, "endpoint_stats")):
        raise TypeError(
            "instrument needs a LoadBalancer, or a client that has a load_balancer and "
            f"endpoint_stats(), got {type(target).__name__}"
        )
    elif clock is not None:
        raise TypeError(f"clock is for a LoadBalancer; {type(target).__name__} has its own")
    with _lock:
        return _watched(meter_provider).add(target, name, clock)


class Instrumentation:
    """What `instrument` has switched on; made by it.

    Args:
        watched: where it is listed.
        target: what is observed.
        name: that its metrics carry.
        clock: of a balancer, else None.
    """

    def __init__(
        self,
        watched: _Watched,
        target: BalancedClient | LoadBalancer,
        name: str,
        clock: Callable[[], float] | None,
    ) -> None:
        self.name = name
        """What its metrics carry as ``lb.client.name``."""
        self._watched = watched
        self._target = ref(target)
        self._clock = clock

    def close(self) -> None:
        """Have nothing observed any more; a second time is a no-op."""
        target = self._target()
        if target is not None:
            self._watched.remove(target, self)

    def read(self) -> Iterator[tuple[dict[str, str], EndpointStats]]:
        """Return the attributes and the record of each endpoint that there is now."""
        target = self._target()
        if isinstance(target, LoadBalancer):
            assert self._clock is not None  # `instrument` has seen to it
            balancer: LoadBalancer | None = target
            records = [(str(k), v) for k, v in target.snapshot(now=self._clock()).items()]
        elif target is not None:
            # One that was opted in with `use_strategy` has none after it was opted out.
            balancer = getattr(target, "load_balancer", None)
            records = [] if balancer is None else list(target.endpoint_stats().items())
        else:
            return
        strategy = None if balancer is None else balancer.strategy
        for endpoint, stats in records:
            yield (
                {
                    "lb.client.name": self.name,
                    "lb.client.strategy": "custom" if strategy is None else strategy.value,
                    "lb.client.endpoint": endpoint,
                },
                stats,
            )


@dataclass(frozen=True, slots=True)
class _Metric:
    """What is observed, and how it is got from the record of one endpoint.

    Args:
        kind: of instrument: "counter", "up_down_counter" or "gauge".
        name: without the prefix ``lb.client.``.
        unit: as OpenTelemetry writes it.
        description: for whoever reads a dashboard.
        values: of one endpoint, by the value of `label`; by "" without one.
        label: what tells several values of one endpoint apart.
    """

    kind: str
    name: str
    unit: str
    description: str
    values: Callable[[EndpointStats], Mapping[str, float]]
    label: str = ""


def _field(name: str) -> Callable[[EndpointStats], Mapping[str, float]]:
    return lambda stats: {"": getattr(stats, name)}


def _outcomes(stats: EndpointStats) -> Mapping[str, float]:
    return {
        "success": stats.successes,
        "failure": stats.failures,
        "timeout": stats.timeouts,
        "cancelled": stats.cancellations,
    }


_METRICS: Final = (
    _Metric(
        "up_down_counter",
        "in_flight",
        "{request}",
        "Requests sent to the endpoint and not answered yet.",
        _field("in_flight"),
    ),
    _Metric(
        "counter",
        "picks",
        "{request}",
        "Requests for which the strategy chose the endpoint.",
        _field("picks"),
    ),
    _Metric(
        "counter",
        "requests",
        "{request}",
        "Requests that ended on the endpoint, by outcome.",
        _outcomes,
        "outcome",
    ),
    _Metric(
        "gauge",
        "round_trip.peak",
        "s",
        "Peak-sensitive round trip, which decides who is picked.",
        _field("peak_rtt"),
    ),
    _Metric(
        "gauge",
        "round_trip.mean",
        "s",
        "Robust average round trip, which decides who is an outlier.",
        _field("mean_rtt"),
    ),
    _Metric(
        "up_down_counter",
        "ejected",
        "{endpoint}",
        "1 while the endpoint is out of the pool, else 0.",
        lambda stats: {"": int(stats.ejected)},
    ),
    _Metric(
        "counter",
        "ejections",
        "{ejection}",
        "How often the endpoint has left the pool, by reason.",
        lambda stats: stats.ejections_for,
        "reason",
    ),
    _Metric(
        "counter",
        "returns",
        "{return}",
        "How often the endpoint has come back into the pool.",
        _field("returns"),
    ),
    _Metric(
        "counter",
        "probes",
        "{request}",
        "Requests that tried whether an avoided endpoint is well again.",
        _field("probes"),
    ),
)


class _Watched:
    """What one provider's instruments observe.

    Args:
        meter: makes the instruments; once, because they cannot be taken back.
    """

    def __init__(self, meter: Meter) -> None:
        self._targets: WeakKeyDictionary[BalancedClient | LoadBalancer, Instrumentation] = (
            WeakKeyDictionary()
        )
        for metric in _METRICS:
            create = getattr(meter, f"create_observable_{metric.kind}")
            create(
                f"lb.client.{metric.name}",
                [partial(self._observe, metric)],
                unit=metric.unit,
                description=metric.description,
            )

    def add(
        self,
        target: BalancedClient | LoadBalancer,
        name: str,
        clock: Callable[[], float] | None,
    ) -> Instrumentation:
        """Observe `target`, under `name` or the like."""
        self._targets.pop(target, None)
        taken = {instrumentation.name for instrumentation in self._instrumentations()}
        numbered = (f"{name}-{number}" for number in count(2))
        free = next(n for n in chain([name], numbered) if n not in taken)
        added = self._targets[target] = Instrumentation(self, target, free, clock)
        return added

    def remove(self, target: BalancedClient | LoadBalancer, which: Instrumentation) -> None:
        """Forget `target`, unless `which` has been replaced."""
        if self._targets.get(target) is which:
            del self._targets[target]

    def _instrumentations(self) -> list[Instrumentation]:
        # By references: other threads may add and drop targets meanwhile.
        targets = [reference() for reference in self._targets.keyrefs()]
        found = [self._targets.get(target) for target in targets if target is not None]
        return [instrumentation for instrumentation in found if instrumentation is not None]

    def _observe(self, metric: _Metric, options: CallbackOptions) -> Iterator[Observation]:
        for instrumentation in self._instrumentations():
            for attributes, stats in instrumentation.read():
                for value_of_label, value in metric.values(stats).items():
                    label = {f"lb.client.{metric.label}": value_of_label} if metric.label else {}
                    yield Observation(value, attributes | label)


_lock = threading.Lock()
_by_provider: WeakKeyDictionary[MeterProvider, _Watched] = WeakKeyDictionary()
_stand_in: Final = ref(get_meter_provider())
"""What is global until the program sets a provider, which then takes over its instruments."""


def _watched(provider: MeterProvider | None) -> _Watched:
    """Return what the instruments of `provider` observe, made if new."""
    current = get_meter_provider()
    if provider is None:
        provider = current
    found = _by_provider.get(provider)
    stand_in = _stand_in()
    if found is None and provider is current and stand_in is not None:
        # Made again with the provider that has taken over, they would be ignored as duplicates.
        found = _by_provider.get(stand_in)
    if found is None:
        found = _Watched(provider.get_meter("lb_strategies", __version__))
    _by_provider[provider] = found
    return found
