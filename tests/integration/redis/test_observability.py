"""What an operator sees of a replica that stops answering and comes back."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from bench.servers.redis import RedisClusterServers
from lb_strategies import BalancerOptions, EndpointStats
from lb_strategies.telemetry import instrument
from lb_strategies_redis import use_strategy

from . import library
from .drivers import Connector, Driver, Mode
from .nodes import frozen

pytestmark = pytest.mark.integration

EJECTED = re.compile(
    r"ejected (?P<endpoint>\S+): reason=(?P<reason>latency|errors|hung) "
    r"mean=(?P<mean>\d+\.\d{6})s median=(?P<median>\d+\.\d{6})s samples=\d+ "
    r"failures_in_a_row=\d+ succeeded=\d+/\d+ oldest_request=(?P<oldest>\d+\.\d{6})s pool=[012]/3"
)
RETURNED = re.compile(
    r"returned (?P<endpoint>\S+): reason=(?P<reason>latency|errors|hung) "
    r"out_for=(?P<out>\d+\.\d{3})s"
    r"(?: probe=\d+\.\d{6}s median=\d+\.\d{6}s|, a worse one takes its place,) pool=[123]/3"
)


class Metrics:
    """A provider of its own, and what is collected from it on demand."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader])

    def read(self, name: str, **labels: str) -> dict[str, Any]:
        """Return the values of one metric by endpoint."""
        data: Any = self._reader.get_metrics_data()
        found = {}
        for resource in data.resource_metrics if data is not None else ():
            for metric in resource.scope_metrics[0].metrics:
                for point in metric.data.data_points if metric.name == name else ():
                    attributes = point.attributes
                    if all(attributes[f"lb.client.{k}"] == v for k, v in labels.items()):
                        found[attributes["lb.client.endpoint"]] = point.value
        return found


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    metrics = Metrics()
    yield metrics
    metrics.provider.shutdown()


async def read_until(client: Driver, condition: Callable[[], bool]) -> None:
    """Let four loops read, so that one that hangs is noticed by the others."""
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, client.stats()
        loops = (client.reads(seconds=0.2, pause=0.001) for _ in range(4))
        for log in await asyncio.gather(*loops):
            assert log.errors == []


async def test_an_ejection_and_a_return_are_logged_once_and_counted(
    connect: Connector,
    shard: RedisClusterServers,
    metrics: Metrics,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """https://github.com/redis/redis-py/issues/4185 asks for statistics of each node."""
    caplog.set_level(logging.DEBUG, "lb_strategies")
    options = BalancerOptions(probe_interval=0.2, max_probe_interval=0.5)
    client = await connect.ours(
        shard, "latency_based", socket_timeout=1.0, balancer_options=options
    )
    instrument(client.client, meter_provider=metrics.provider)
    sick = shard.replicas[0].endpoint

    def lines(pattern: re.Pattern[str]) -> list[re.Match[str]]:
        return [match for line in caplog.messages if (match := pattern.fullmatch(line))]

    def agrees() -> bool:
        """Whether there is one line for each event, and nothing else, on whatever node."""
        left, back = lines(EJECTED), lines(RETURNED)
        stats = client.stats()
        return (
            Counter(line["endpoint"] for line in left) == Counter(_counts(stats, "ejections"))
            and Counter(line["endpoint"] for line in back) == Counter(_counts(stats, "returns"))
            and len(left) + len(back) == len(caplog.messages)
        )

    await client.reads(count=200)
    before = client.stats()[sick]
    assert not before.ejected
    with frozen(shard.replicas[0]):
        await read_until(client, lambda: client.stats()[sick].ejected)
        await read_until(client, lambda: client.stats()[sick].probes > before.probes + 1)
        ejected = client.stats()[sick]
        assert (ejected.ejections, ejected.returns) == (before.ejections + 1, before.returns)
        assert metrics.read("lb.client.ejected")[sick] == 1
        assert agrees(), caplog.messages
    [*_, line] = [line for line in lines(EJECTED) if line["endpoint"] == sick]
    assert line["reason"] == ejected.ejected_for
    if line["reason"] == "hung":
        assert float(line["oldest"]) >= max(0.050, 8 * float(line["median"])) - 1e-5
    counted = metrics.read("lb.client.ejections", reason=line["reason"])
    assert counted[sick] == before.ejections_for[line["reason"]] + 1

    await read_until(client, lambda: client.stats()[sick].returns > before.returns)
    assert agrees(), caplog.messages
    [*_, line] = [line for line in lines(RETURNED) if line["endpoint"] == sick]
    assert float(line["out"]) >= 0.9 * options.probe_interval
    assert metrics.read("lb.client.returns") == _counts(client.stats(), "returns")
    assert metrics.read("lb.client.ejected") == _counts(client.stats(), "ejected")


def _counts(stats: dict[str, EndpointStats], counter: str) -> dict[str, int]:
    return {endpoint: int(getattr(s, counter)) for endpoint, s in stats.items()}


async def test_a_client_that_was_opted_in_is_observed_until_it_is_opted_out(
    connect: Connector, shard: RedisClusterServers, metrics: Metrics
) -> None:
    client = await connect.stock(shard)
    client.balancer = use_strategy(client.client, "latency_based_replicas")
    instrument(client.client, meter_provider=metrics.provider)
    await client.reads(count=100)
    await client.set("w", "v")
    primary = shard.primaries[0].endpoint
    picks = metrics.read("lb.client.picks", strategy="latency_based_replicas")
    assert picks == {node.endpoint: client.stats()[node.endpoint].picks for node in shard.nodes}
    assert sum(picks.values()) == 100
    assert picks[primary] == 0
    assert metrics.read("lb.client.requests", outcome="success")[primary] == 1
    assert set(metrics.read("lb.client.in_flight").values()) == {0}
    client.balancer = use_strategy(client.client, None)
    assert metrics.read("lb.client.in_flight") == {}


async def test_metrics_keep_no_client_alive(
    mode: Mode, shard: RedisClusterServers, metrics: Metrics
) -> None:
    where: dict[str, Any] = {
        "host": shard.host,
        "port": shard.port,
        "load_balancing_strategy": "latency_based",
    }
    client: Any
    if mode == "sync":
        client = await asyncio.to_thread(lambda: library.OURS["sync"](**where))
        instrument(client, meter_provider=metrics.provider)
        assert await asyncio.to_thread(client.get, "key:0") == b"key:0"
        client.close()
        client.disconnect_connection_pools()
    else:
        client = library.OURS["asyncio"](**where)
        instrument(client, meter_provider=metrics.provider)
        assert await client.get("key:0") == b"key:0"
        await client.aclose()
    assert metrics.read("lb.client.picks").keys() == {node.endpoint for node in shard.nodes}
    gone = weakref.ref(client)
    del client
    end = time.monotonic() + 10
    while gone() is not None and time.monotonic() < end:
        await asyncio.sleep(0.05)  # in asyncio a timer of 20 ms may hold it
        gc.collect()
    assert gone() is None
    assert metrics.read("lb.client.picks") == {}
