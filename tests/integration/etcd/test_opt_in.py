"""Clients that something else built: opted in, and given back; and arguments that do not fit."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import aetcd
import grpc
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from bench.servers.etcd import EtcdServers
from lb_strategies import ConsensusOptions, EndpointPolicy, LoadBalancingStrategy
from lb_strategies.telemetry import instrument
from lb_strategies_etcd import connect_aetcd, connect_etcd3, use_strategy

from .conftest import Starter
from .libraries import ETCD3, imported

pytestmark = pytest.mark.integration


@pytest.fixture(params=ETCD3)
def etcd3(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Each package that is imported so."""
    with imported(request.param):
        import etcd3

        yield etcd3


def address(etcd: EtcdServers, number: int = 0) -> dict[str, Any]:
    host, _, port = etcd.endpoints[number].rpartition(":")
    return {"host": host, "port": int(port)}


# -- etcd3 ----------------------------------------------------------------------------------


def test_a_client_is_opted_in_and_given_back(etcd3: Any, etcd: EtcdServers) -> None:
    with etcd3.client(**address(etcd)) as client, etcd3.client(**address(etcd)) as other:
        kind = type(client)
        client.put("key", "before")
        balancer = use_strategy(client, "hybrid", endpoints=etcd.endpoints)
        assert balancer is client.load_balancer
        assert isinstance(client, kind)
        assert type(client).__name__ == kind.__name__
        for _ in range(12):
            assert client.get("key")[0] == b"before"
        assert min(stats.picks for stats in client.endpoint_stats().values()) >= 3
        assert not hasattr(other, "load_balancer")
        assert other.get("key")[0] == b"before"
        channel = client.channel
        assert use_strategy(client, None) is None
        assert channel.is_closed
        assert type(client) is kind
        assert not hasattr(client, "leader")
        client.put("key", "after")
        assert client.get("key")[0] == b"after"
        assert use_strategy(client, None) is None  # a second time changes nothing


def test_a_strategy_can_take_the_place_of_another(etcd3: Any, etcd: EtcdServers) -> None:
    with etcd3.client(**address(etcd)) as client:
        kind = type(client)
        use_strategy(client, "hybrid", endpoints=etcd.endpoints)
        first = client.channel
        use_strategy(client, "latency_based", endpoints=etcd.endpoints[:2])
        assert first.is_closed
        assert set(client.endpoint_stats()) == set(etcd.endpoints[:2])
        assert client.load_balancer.strategy is LoadBalancingStrategy.LATENCY_BASED
        client.put("key", "value")
        use_strategy(client, None)
        assert type(client) is kind
        assert client.get("key")[0] == b"value"


def test_no_thread_of_a_watch_outlives_what_the_tests_import(etcd: EtcdServers) -> None:
    """It would report the import that python3-etcd3 forgot to whichever test comes next."""
    for _ in range(40):
        with imported("python3-etcd3"):
            client = connect_etcd3(etcd.endpoints)
            client.watch("key")
            client.close()
        assert not any(t.name.startswith("etcd3_watch") for t in threading.enumerate())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_watches_that_there_are_go_on(etcd3: Any, etcd: EtcdServers) -> None:
    with etcd3.client(**address(etcd)) as client:
        events, _ = client.watch("key")
        use_strategy(client, "hybrid", endpoints=etcd.endpoints)
        client.put("key", "value")
        assert next(events).value == b"value"
    for thread in threading.enumerate():
        if thread.name.startswith("etcd3_watch"):
            thread.join(5)  # etcd3's own watches end with a traceback


def test_a_class_of_the_users_own(etcd3: Any, etcd: EtcdServers) -> None:
    class Own(etcd3.Etcd3Client):  # type: ignore[misc]
        def close(self) -> None:
            self.was_closed = True
            super().close()

    client = Own(**address(etcd))
    use_strategy(client, "hybrid", endpoints=etcd.endpoints)
    channel = client.channel
    client.close()
    assert client.was_closed
    assert channel.is_closed


def test_a_client_that_routes_from_the_start_has_nothing_to_go_back_to(
    etcd3: Any, etcd: EtcdServers
) -> None:
    with connect_etcd3(etcd.endpoints) as client:
        with pytest.raises(ValueError, match="strategy must not be None"):
            use_strategy(client, None)
        use_strategy(client, "latency_based", endpoints=etcd.endpoints)
        client.put("key", "value")
        with pytest.raises(ValueError, match="strategy must not be None"):
            use_strategy(client, None)


def test_a_client_with_several_endpoints_of_its_own(etcd: EtcdServers) -> None:
    """It ends its watches on any error, since it may have to leave for another server."""
    with imported("cslab-etcd3"):
        import etcd3

        own = [etcd3.Endpoint(**address(etcd, n), secure=False) for n in range(3)]
        with etcd3.MultiEndpointEtcd3Client(own, timeout=5) as client:
            use_strategy(client, "hybrid", endpoints=etcd.endpoints)
            events, _ = client.watch("key")
            client.timeout = 0.3
            for member in etcd.members:
                member.pause()
            with pytest.raises(etcd3.exceptions.ConnectionTimeoutError):
                client.put("key", "value")
            for member in etcd.members:
                member.resume()
            client.timeout = 5
            client.put("key", "value")
            assert next(events).value == b"value"
            use_strategy(client, None)
            assert client.get("key")[0] == b"value"


def test_its_own_token_is_sent_as_long_as_there_is_no_user(etcd3: Any, start_etcd: Starter) -> None:
    etcd = start_etcd(password="secret")
    client = etcd3.client(**address(etcd), timeout=10)
    with pytest.raises(grpc.RpcError, match="user name is empty"):
        client.get("key")
    use_strategy(client, "hybrid", endpoints=etcd.endpoints, user="root", password="secret")
    client.put("key", "value")
    assert client.get("key")[0] == b"value"
    token, *_ = client.channel._tokens._tokens.values()
    use_strategy(client, None)
    client.metadata = (("token", token),)
    time.sleep(0.3)  # until every member has it
    use_strategy(client, "hybrid", endpoints=etcd.endpoints)
    client.put("key", "other")
    client.close()


def test_tls_needs_credentials(etcd3: Any, start_etcd: Starter) -> None:
    etcd = start_etcd(tls=True)
    with etcd3.client(**address(etcd), ca_cert=str(etcd.authority)) as client:
        client.put("key", "value")
        with pytest.raises(ValueError, match="credentials or ca_cert must be given"):
            use_strategy(client, "hybrid", endpoints=etcd.endpoints)
        assert not hasattr(client, "leader")
        use_strategy(client, "hybrid", endpoints=etcd.endpoints, ca_cert=etcd.authority)
        for _ in range(9):
            assert client.get("key")[0] == b"value"
        assert all(stats.successes for stats in client.endpoint_stats().values())
        use_strategy(client, None)
        assert client.get("key")[0] == b"value"


# -- aetcd ----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_connected", [False, True])
async def test_an_aetcd_client_is_opted_in_and_given_back(
    etcd: EtcdServers, is_connected: bool
) -> None:
    async with connected(etcd, is_connected) as client:
        use_strategy(client, "hybrid", endpoints=etcd.endpoints)
        await client.put(b"key", b"value")
        for _ in range(12):
            assert (await client.get(b"key")).value == b"value"
        routed: Any = client
        assert min(stats.picks for stats in routed.endpoint_stats().values()) >= 3
        channel = client.channel
        use_strategy(client, None)
        assert type(client) is aetcd.Client
        assert (await client.get(b"key")).value == b"value"
        await asyncio.sleep(0.1)
        assert channel.is_closed


class connected:  # a context manager
    def __init__(self, etcd: EtcdServers, is_connected: bool) -> None:
        self.client = aetcd.Client(**address(etcd))
        self._is_connected = is_connected

    async def __aenter__(self) -> Any:
        if self._is_connected:
            await self.client.connect()
        return self.client

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()


async def test_an_aetcd_client_can_be_used_after_its_closing(etcd: EtcdServers) -> None:
    client: Any = aetcd.Client(**address(etcd))
    use_strategy(client, "hybrid", endpoints=etcd.endpoints)
    for number in range(3):
        await client.put(b"key", b"%d" % number)
        assert (await client.get(b"key")).value == b"%d" % number
        await client.close()
    use_strategy(client, None)
    assert (await client.get(b"key")).value == b"2"
    await client.close()


def test_an_aetcd_client_is_opted_in_outside_of_any_loop(etcd: EtcdServers) -> None:
    async def use() -> None:
        await client.put(b"key", b"value")
        assert (await client.get(b"key")).value == b"value"
        await client.close()

    client: Any = aetcd.Client(**address(etcd))
    use_strategy(client, "hybrid", endpoints=iter(etcd.endpoints))
    asyncio.run(use())
    asyncio.run(use())
    use_strategy(client, None)
    asyncio.run(use())


async def test_the_user_of_an_aetcd_client_is_taken_along(start_etcd: Starter) -> None:
    etcd = start_etcd(password="secret")
    client: Any = aetcd.Client(**address(etcd), username="root", password="secret")
    use_strategy(client, "hybrid", endpoints=etcd.endpoints)
    await client.put(b"key", b"value")
    for _ in range(6):
        assert (await client.get(b"key")).value == b"value"
    await client.close()


# -- both -----------------------------------------------------------------------------------


async def test_both_libraries_in_one_process(etcd3: Any, etcd: EtcdServers) -> None:
    async with await connect_aetcd(etcd.endpoints) as other:
        with connect_etcd3(etcd.endpoints) as client:
            await asyncio.to_thread(client.put, "key", "value")
            assert (await other.get(b"key")).value == b"value"


def test_metrics_are_observed(etcd: EtcdServers) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    with imported("etcd3"), connect_etcd3(etcd.endpoints) as client:
        instrument(client, name="etcd", meter_provider=provider)
        for _ in range(12):
            client.get("key")
        data: Any = reader.get_metrics_data()
    points = [
        point
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        for point in metric.data.data_points
    ]
    assert {point.attributes["lb.client.endpoint"] for point in points} == set(etcd.endpoints)
    assert {point.attributes["lb.client.strategy"] for point in points} == {"hybrid"}
    provider.shutdown()


# -- arguments ------------------------------------------------------------------------------

ONE = ["127.0.0.1:1"]
BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"endpoints": []}, ValueError, "endpoints must name at least one member, got none"),
    ({"endpoints": "a:1"}, TypeError, "endpoints must be several addresses, got 'a:1'"),
    ({"endpoints": ["a:1", "http://A:1"]}, ValueError, "endpoints must be different, got a:1"),
    ({"endpoints": ["a"]}, ValueError, "got 'a'"),
    ({"endpoints": [1]}, TypeError, "endpoints must hold addresses as str, got 1"),
    ({"endpoints": ["https://a:1"]}, ValueError, "endpoint https://a:1 needs credentials"),
    ({"strategy": "fastest"}, ValueError, "'fastest'"),
    ({"strategy": 1}, ValueError, "unknown load balancing strategy 1"),
    ({"timeout": 0}, ValueError, "timeout must be finite and greater than 0, got 0"),
    ({"timeout": float("nan")}, ValueError, "timeout must be finite .* got nan"),
    ({"timeout": "5"}, TypeError, "timeout must be a number of seconds or None, got '5'"),
    ({"timeout": True}, TypeError, "timeout must be a number of seconds or None, got True"),
    ({"user": "root"}, ValueError, "user and password go together, got no password"),
    ({"password": "p"}, ValueError, "user and password go together, got no user"),
    ({"options": {}}, TypeError, "options must be a ConsensusOptions, got {}"),
    ({"endpoint_policy": "x"}, TypeError, "endpoint_policy must be an EndpointPolicy, got 'x'"),
    ({"channels_per_member": 0}, ValueError, "channels_per_member must be 1 to 64, got 0"),
    ({"credentials": "x"}, TypeError, "credentials must be grpc.ChannelCredentials, got str"),
    ({"ca_cert": "/nowhere"}, ValueError, "ca_cert must be a readable file, got '/nowhere'"),
    ({"cert_key": "k"}, ValueError, "cert_key and cert_cert go together, got no cert_cert"),
    ({"nonsense": 1}, TypeError, "nonsense"),
]


@pytest.mark.parametrize(("arguments", "kind", "message"), BAD)
async def test_arguments_that_do_not_fit(
    arguments: dict[str, Any], kind: type[Exception], message: str
) -> None:
    given = {"endpoints": ONE, **arguments}
    endpoints = given.pop("endpoints")
    with imported("etcd3"):
        import etcd3

        with pytest.raises(kind, match=message):
            connect_etcd3(endpoints, **given)
        with pytest.raises(kind, match=message):
            await connect_aetcd(endpoints, **given)
        if "timeout" in given:
            return
        client = etcd3.client()
        attributes = dict(vars(client))
        strategy = given.pop("strategy", "hybrid")
        with pytest.raises(kind, match=message):
            use_strategy(client, strategy, endpoints=endpoints, **given)
        assert vars(client) == attributes
        assert type(client) is etcd3.Etcd3Client
        client.close()


@pytest.mark.parametrize("client", [None, 1, grpc.insecure_channel("127.0.0.1:1")])
def test_other_clients_are_refused(client: Any) -> None:
    with pytest.raises(TypeError, match="a client of etcd3 or aetcd is needed, got"):
        use_strategy(client, "hybrid", endpoints=ONE)


def test_arguments_without_a_strategy_are_refused() -> None:
    client = aetcd.Client()
    with pytest.raises(ValueError, match="need a strategy, got None"):
        use_strategy(client, None, endpoints=ONE)
    with pytest.raises(ValueError, match="need a strategy, got None"):
        use_strategy(client, None, user="u", password="p")


async def test_everything_can_be_given_at_once(etcd: EtcdServers) -> None:
    with (
        imported("etcd3"),
        connect_etcd3(
            etcd.endpoints,
            strategy=LoadBalancingStrategy.LATENCY_BASED,
            options=ConsensusOptions(poll_interval=0.1),
            timeout=5,
            channel_options=[("grpc.max_receive_message_length", 1 << 24)],
            channels_per_member=2,
            resume_watches=True,
            endpoint_policy=EndpointPolicy(),
        ) as client,
    ):
        await asyncio.to_thread(client.put, "key", "value")
    async with await connect_aetcd(etcd.endpoints, channels_per_member=2) as other:
        assert (await other.get(b"key")).value == b"value"
