"""TLS: certificates that are right, wrong, or asked of the client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.servers.binaries import can_tls, find_redis_server
from bench.servers.redis import RedisClusterServers, RedisNode, tls_options
from bench.servers.tls import Certificates, TlsFiles

from . import library
from .drivers import Address, Connector
from .nodes import KEYS, calls, fill, since

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def _secure(certificates: Certificates) -> Iterator[RedisClusterServers]:
    binary = find_redis_server()
    if not can_tls(binary):
        pytest.skip(f"redis-server {binary.version} has no TLS: apt-get install redis-server")
    files = certificates.issue("127.0.0.1")
    with RedisClusterServers(primaries=1, replicas=1, binary=binary, tls=files) as servers:
        yield servers


@pytest.fixture
def secure(_secure: RedisClusterServers) -> RedisClusterServers:
    """A primary and a replica that talk TLS on their second ports."""
    fill(_secure)
    return _secure


def door(servers: RedisClusterServers) -> Address:
    """Return where a client starts with TLS."""
    port = servers.nodes[0].tls_port
    assert port is not None
    return Address(servers.host, port)


def trusting(files: TlsFiles, *, own: bool = False) -> dict[str, Any]:
    """Return a client's options: whom it trusts, and its own certificate if `own`."""
    options: dict[str, Any] = {
        "ssl": True,
        "ssl_ca_certs": str(files.authority),
        "ssl_check_hostname": True,
    }
    if own:
        options |= {"ssl_certfile": str(files.certificate), "ssl_keyfile": str(files.key)}
    return options


def endpoint(node: RedisNode) -> str:
    return f"{node.host}:{node.tls_port}"


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("own", [False, True], ids=["anonymous", "with a certificate"])
async def test_reads_are_spread_over_tls(
    connect: Connector,
    secure: RedisClusterServers,
    certificates: Certificates,
    own: bool,
    protocol: int,
) -> None:
    options = trusting(certificates.issue("127.0.0.1"), own=own)
    for node in secure.nodes:
        node.ask("CONFIG", "SET", "tls-auth-clients", "yes" if own else "optional")
    client = await connect.ours(door(secure), "latency_based", protocol=protocol, **options)
    before = calls(secure.nodes)
    log = await client.reads(count=200, keys=KEYS)
    assert log.errors == []
    assert log.values == [KEYS[i % len(KEYS)] for i in range(200)]
    assert min(since(before, secure.nodes).values()) > 0
    assert client.stats().keys() == {endpoint(node) for node in secure.nodes}
    assert await client.pipeline([("get", key) for key in KEYS]) == list(KEYS)
    assert await client.set("w", "v")
    assert await client.together([("get", "key:0")] * 8) == ["key:0"] * 8
    assert client.total("failures") == client.total("timeouts") == client.total("in_flight") == 0


async def test_a_handshake_that_fails_gives_the_stock_clients_error(
    connect: Connector,
    secure: RedisClusterServers,
    certificates: Certificates,
    tmp_path: Path,
) -> None:
    """Neither a server that is not trusted nor one that does not trust us is a riddle."""
    ours = certificates.issue("127.0.0.1")
    strange = Certificates(tmp_path).issue("127.0.0.1")
    required = {"yes": trusting(ours), "optional": trusting(strange, own=True)}
    for setting, options in required.items():
        for node in secure.nodes:
            node.ask("CONFIG", "SET", "tls-auth-clients", setting)
        seen = []
        for strategy in ("round_robin", "latency_based"):
            with pytest.raises((library.ClientError, library.ClusterException)) as caught:
                await connect.ours(door(secure), strategy, **connect.retries(0), **options)
            seen.append(type(caught.value))
        assert seen[0] is seen[1]


@pytest.mark.parametrize("checks", [True, False])
async def test_a_replica_with_somebody_elses_certificate_is_left_out(
    connect: Connector, secure: RedisClusterServers, certificates: Certificates, checks: bool
) -> None:
    """No byte of a command goes to it, and the user sees no error; unless nobody checks."""
    if checks and connect.mode == "sync" and not library.CHECKS_HOST_NAMES:
        pytest.skip(f"{library.TITLE} forgets ssl_check_hostname in a synchronous cluster client")
    files = certificates.issue("127.0.0.1")
    sick = secure.replicas[0]
    for node in secure.nodes:
        node.ask("CONFIG", "SET", "tls-auth-clients", "optional")
    sick.ask("CONFIG", "SET", *_flat(tls_options(certificates.issue("localhost"))))
    try:
        options = trusting(files) | {"ssl_check_hostname": checks}
        client = await connect.ours(door(secure), "latency_based", **options)
        before = calls([sick])
        log = await client.reads(count=100, keys=KEYS)
        assert log.errors == []
        assert log.values == [KEYS[i % len(KEYS)] for i in range(100)]
        assert await client.pipeline([("get", key) for key in KEYS]) == list(KEYS)
        served = sum(since(before, [sick]).values())
        if checks:
            assert served == 0
            assert client.stats()[endpoint(sick)].failures > 0
        else:
            assert served > 0
            assert client.total("failures") == 0
        assert client.total("in_flight") == 0
    finally:
        sick.ask("CONFIG", "SET", *_flat(tls_options(files)))


def _flat(options: dict[str, str]) -> list[str]:
    return [word for pair in options.items() for word in pair]
