"""OpenTelemetry metrics, as the SDK's own reader collects them."""

from __future__ import annotations

import gc
import importlib
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator
from typing import Any, cast

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Metric, Sum

import lb_strategies
from lb_strategies import EndpointStats, LoadBalancer, LoadBalancingStrategy, Outcome
from lb_strategies.telemetry import instrument
from lb_strategies.testing import ManualClock

from .scripted import MS, answer, balancer, fail, look
from .test_balancer import First

ABC = ("a", "b", "c")

Labels = tuple[tuple[str, str], ...]


class Collected:
    """A provider, and what a reader collects from it."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader])

    def metrics(self) -> dict[str, Metric]:
        """Return what there is now, by name."""
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
        for scope in scopes:
            assert scope.scope.name == "lb_strategies"
            assert scope.scope.version == lb_strategies.__version__
        metrics = (metric for scope in scopes for metric in scope.metrics)
        return {metric.name: metric for metric in metrics if metric.data.data_points}

    def points(self, name: str) -> list[dict[str, Any]]:
        """Return the labels of each point of one metric, without prefix, and its value."""
        metric = self.metrics().get(f"lb.client.{name}")
        return [
            {k.removeprefix("lb.client."): v for k, v in (point.attributes or {}).items()}
            | {"value": cast("Any", point).value}
            for point in ([] if metric is None else metric.data.data_points)
        ]

    def values(self, name: str, label: str = "endpoint") -> dict[Any, float]:
        """Return the values of one metric, by one label."""
        return {point[label]: point["value"] for point in self.points(name)}


@pytest.fixture
def collected() -> Iterator[Collected]:
    """A provider of this test's own."""
    collected = Collected()
    yield collected
    collected.provider.shutdown()


class Client:
    """What a client of ours looks like."""

    def __init__(self, target: LoadBalancer | None, clock: Callable[[], float]) -> None:
        self.load_balancer = target
        self.clock = clock

    def endpoint_stats(self) -> dict[str, EndpointStats]:
        if self.load_balancer is None:
            return {}
        return {str(k): v for k, v in self.load_balancer.snapshot(now=self.clock()).items()}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def used(clock: ManualClock, endpoints: tuple[Hashable, ...] = ABC) -> LoadBalancer:
    """Return a balancer that has heard ten answers of each endpoint."""
    target = balancer()
    clock.now = answer(target, endpoints, now=clock.now)
    look(target, endpoints, now=clock.now)
    return target


# -- what is observed -----------------------------------------------------------------------


def test_every_metric_has_a_unit_and_a_description(
    collected: Collected, clock: ManualClock
) -> None:
    target = used(clock)
    instrument(target, clock=clock, meter_provider=collected.provider)
    found = {name: (type(m.data).__name__, m.unit) for name, m in collected.metrics().items()}
    assert found == {
        "lb.client.in_flight": ("Sum", "{request}"),
        "lb.client.picks": ("Sum", "{request}"),
        "lb.client.requests": ("Sum", "{request}"),
        "lb.client.round_trip.peak": ("Gauge", "s"),
        "lb.client.round_trip.mean": ("Gauge", "s"),
        "lb.client.ejected": ("Sum", "{endpoint}"),
        "lb.client.ejections": ("Sum", "{ejection}"),
        "lb.client.returns": ("Sum", "{return}"),
        "lb.client.probes": ("Sum", "{request}"),
    }
    assert all((metric.description or "").endswith(".") for metric in collected.metrics().values())
    # A counter's rate may be taken, the others' may not.
    sums = {n: m.data for n, m in collected.metrics().items() if isinstance(m.data, Sum)}
    assert {name for name, data in sums.items() if not data.is_monotonic} == {
        "lb.client.in_flight",
        "lb.client.ejected",
    }


def test_a_client_is_observed_at_its_own_clock(collected: Collected, clock: ManualClock) -> None:
    client = Client(used(clock), clock)
    assert client.load_balancer is not None
    client.load_balancer.begin("b", now=clock.now)
    answer(client.load_balancer, ["c"], now=clock.now, rtt=3 * MS, times=1)
    instrument(client, meter_provider=collected.provider)
    assert collected.values("in_flight") == {"a": 0, "b": 1, "c": 0}
    assert sum(collected.values("picks").values()) == 1
    peaks = collected.values("round_trip.peak")
    assert peaks["c"] == pytest.approx(3 * MS)
    clock.advance(60.0)
    assert collected.values("round_trip.peak")["c"] == pytest.approx(MS, rel=0.1)
    assert collected.values("round_trip.mean")["a"] == pytest.approx(MS)


def test_outcomes_are_told_apart(collected: Collected, clock: ManualClock) -> None:
    target = balancer()
    for times, outcome in enumerate(Outcome, start=1):
        fail(target, "a", now=0.0, times=times, outcome=outcome)
    instrument(target, clock=clock, meter_provider=collected.provider)
    assert collected.values("requests", "outcome") == {
        "success": 1 + 6,  # and UNTIMED; REDIRECT is not among them
        "failure": 2,
        "timeout": 3,
        "cancelled": 4,
    }


def test_ejections_returns_and_probes_are_counted(collected: Collected, clock: ManualClock) -> None:
    target = used(clock)
    instrument(target, clock=clock, meter_provider=collected.provider)
    fail(target, "a", now=clock.now)
    assert collected.values("ejected") == {"a": 1, "b": 0, "c": 0}
    ejections = [point for point in collected.points("ejections") if point["endpoint"] == "a"]
    assert {point["reason"]: point["value"] for point in ejections} == {
        "latency": 0,
        "errors": 1,
        "hung": 0,
    }
    probe = target.acquire(ABC, now=clock.advance(1.5))
    assert collected.values("probes") == {"a": 1, "b": 0, "c": 0}
    probe.done(Outcome.SUCCESS, now=clock.advance(MS))
    assert collected.values("ejected") == {"a": 0, "b": 0, "c": 0}
    assert collected.values("returns") == {"a": 1, "b": 0, "c": 0}


def test_labels_are_from_small_fixed_sets(collected: Collected, clock: ManualClock) -> None:
    """No key, command or other data of the user's."""
    target = balancer()
    answer(target, ABC, now=0.0, operation="GET secret")
    instrument(target, clock=clock, meter_provider=collected.provider, name="orders")
    common = {"name", "strategy", "endpoint", "value"}
    for name in collected.metrics():
        points = collected.points(name.removeprefix("lb.client."))
        for point in points:
            assert point["name"] == "orders"
            assert point["strategy"] == "latency_based"
            assert point["endpoint"] in ABC
            assert point.get("outcome", "success") in ("success", "failure", "timeout", "cancelled")
            assert point.get("reason", "hung") in ("latency", "errors", "hung")
            assert point.keys() - common <= {"outcome", "reason"}
        assert points


def test_a_policy_of_the_users_own_is_called_custom(
    collected: Collected, clock: ManualClock
) -> None:
    target = LoadBalancer(First())
    answer(target, [("host", 1)], now=0.0)
    instrument(target, clock=clock, meter_provider=collected.provider)
    [point] = collected.points("in_flight")
    assert point["strategy"] == "custom"
    assert point["endpoint"] == "('host', 1)"


def test_an_endpoint_that_has_left_is_not_observed(
    collected: Collected, clock: ManualClock
) -> None:
    target = used(clock)
    instrument(target, clock=clock, meter_provider=collected.provider)
    assert collected.values("picks").keys() == {"a", "b", "c"}
    target.update(("b", "d"))
    for name in collected.metrics():
        values = collected.values(name.removeprefix("lb.client."))
        assert values.keys() == {"b", "d"}


# -- how long it is observed ----------------------------------------------------------------


def test_a_closed_instrumentation_observes_nothing(
    collected: Collected, clock: ManualClock
) -> None:
    target = used(clock)
    instrumentation = instrument(target, clock=clock, meter_provider=collected.provider)
    assert collected.metrics()
    instrumentation.close()
    instrumentation.close()
    assert collected.metrics() == {}


def test_a_dropped_client_is_not_kept_alive(collected: Collected, clock: ManualClock) -> None:
    client = Client(used(clock), clock)
    instrumentation = instrument(client, meter_provider=collected.provider)
    assert collected.metrics()
    gone = weakref.ref(client)
    del client
    gc.collect()
    assert gone() is None
    assert collected.metrics() == {}
    instrumentation.close()
    assert list(instrumentation.read()) == []


def test_a_client_may_change_its_strategy(collected: Collected, clock: ManualClock) -> None:
    client = Client(None, clock)
    instrument(client, meter_provider=collected.provider)
    assert collected.metrics() == {}
    for strategy in ("latency_based", "hybrid"):
        client.load_balancer = LoadBalancer(strategy)
        answer(client.load_balancer, ABC, now=0.0)
        assert {point["strategy"] for point in collected.points("in_flight")} == {strategy}


def test_clients_of_one_name_are_told_apart(collected: Collected, clock: ManualClock) -> None:
    """A name that is free again is used again, so that there are never more than clients."""
    targets = [used(clock, ("a",)) for _ in range(3)]
    names = [
        instrument(target, clock=clock, meter_provider=collected.provider).name
        for target in targets
    ]
    assert names == ["client", "client-2", "client-3"]
    assert collected.values("in_flight", "name") == dict.fromkeys(names, 0)
    del targets[1]
    gc.collect()
    targets.append(used(clock, ("a",)))
    added = instrument(targets[-1], clock=clock, meter_provider=collected.provider)
    assert added.name == "client-2"


def test_a_client_instrumented_twice_is_observed_once(
    collected: Collected, clock: ManualClock
) -> None:
    target = used(clock, ("a",))
    first = instrument(target, clock=clock, meter_provider=collected.provider, name="first")
    instrument(target, clock=clock, meter_provider=collected.provider, name="second")
    first.close()
    assert collected.values("picks", "name") == {"second": 1}


def test_two_providers_observe_the_same_client(collected: Collected, clock: ManualClock) -> None:
    other = Collected()
    target = used(clock, ("a",))
    for each in (collected, other):
        instrument(target, clock=clock, meter_provider=each.provider)
    assert collected.values("picks") == other.values("picks") == {"a": 1}
    gone = weakref.ref(other.provider)
    other.provider.shutdown()
    del other, each
    gc.collect()
    assert gone() is None


def test_clients_come_and_go_while_they_are_observed(
    collected: Collected, clock: ManualClock
) -> None:
    stop = threading.Event()
    errors: list[BaseException] = []
    stays = used(clock, ("stays",))
    instrument(stays, clock=clock, meter_provider=collected.provider)

    def come_and_go() -> None:
        try:
            while not stop.is_set():
                target = balancer()
                answer(target, ["goes"], now=0.0, times=1)
                instrument(target, clock=clock, meter_provider=collected.provider).close()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=come_and_go) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(200):
            assert "stays" in collected.values("in_flight")
    finally:
        stop.set()
        for thread in threads:
            thread.join(timeout=30)
    assert errors == []


# -- whose mistake --------------------------------------------------------------------------


@pytest.mark.parametrize("target", [None, "client", object(), LoadBalancingStrategy.HYBRID])
def test_only_what_has_a_balancer_is_instrumented(target: Any) -> None:
    with pytest.raises(TypeError, match=f"endpoint_stats.*got {type(target).__name__}"):
        instrument(target)


def test_a_balancer_needs_a_clock_and_a_client_has_one(clock: ManualClock) -> None:
    wrong: Any = instrument
    with pytest.raises(TypeError, match="pass the one of its `now` as clock="):
        wrong(balancer())
    with pytest.raises(TypeError, match="clock is for a LoadBalancer; Client has its own"):
        wrong(Client(None, clock), clock=clock)


def test_the_global_provider_takes_over_what_was_asked_for_before_it(
    monkeypatch: pytest.MonkeyPatch, collected: Collected, clock: ManualClock
) -> None:
    """Made again there, its instruments would be ignored as duplicates."""
    before, after = used(clock, ("a",)), used(clock, ("a",))
    first = instrument(before, clock=clock, name="global")
    monkeypatch.setattr("lb_strategies.telemetry.get_meter_provider", lambda: collected.provider)
    second = instrument(after, clock=clock, name="global")
    assert (first.name, second.name) == ("global", "global-2")


def run(program: str) -> None:
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_the_global_provider_may_be_set_before_between_or_after() -> None:
    """What is asked for before is handed on to the provider that is set; nothing twice."""
    run("""
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from lb_strategies import LoadBalancer
from lb_strategies.telemetry import instrument

balancers = [LoadBalancer("hybrid") for _ in range(3)]
for balancer in balancers:
    balancer.acquire(("a",), now=0.0)
reader = InMemoryMetricReader()
instrument(balancers[0], clock=float)
provider = MeterProvider([reader])
metrics.set_meter_provider(provider)
instrument(balancers[1], clock=float)
instrument(balancers[2], clock=float, meter_provider=provider)
[resource] = reader.get_metrics_data().resource_metrics
[scope] = resource.scope_metrics
for metric in scope.metrics:
    names = {point.attributes["lb.client.name"] for point in metric.data.data_points}
    assert names == {"client", "client-2", "client-3"}, (metric.name, names)
provider.shutdown()
""")


def test_the_core_needs_no_opentelemetry() -> None:
    run("""
import sys
sys.modules["opentelemetry"] = None  # as if it were not installed
from lb_strategies import LoadBalancer
LoadBalancer("latency_based").acquire(("a", "b"), now=0.0)
""")


def test_without_opentelemetry_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "lb_strategies.telemetry")
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", None)
    with pytest.raises(ImportError, match=r'pip install "lb-strategies\[otel\]"'):
        importlib.import_module("lb_strategies.telemetry")
