"""Every Python example in README and docs runs, as it stands, against a real cluster."""

import ast
import asyncio
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import trustme
import valkey

from bench.servers.etcd import EtcdServers
from bench.servers.redis import RedisClusterServers
from bench.servers.zookeeper import ZooKeeperServers

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parent.parent.parent
# That on stores of your own needs another server; tests/conformance/test_own_store.py has one.
PAGES = [
    ROOT / "README.md",
    *(p for p in sorted((ROOT / "docs").glob("*.md")) if p.name != "your-own-store.md"),
]
EXAMPLES = [
    pytest.param(code, id=f"{page.name}-{number}")
    for page in PAGES
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.S))
]


@pytest.fixture(scope="module")
def servers() -> Iterator[RedisClusterServers]:
    with RedisClusterServers(primaries=1, replicas=1) as servers:
        yield servers


@pytest.fixture(scope="module")
def etcd() -> Iterator[EtcdServers]:
    with EtcdServers(members=3) as servers:
        yield servers


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeperServers]:
    with ZooKeeperServers() as servers:
        yield servers


def test_there_are_examples_for_sync_asyncio_and_policies() -> None:
    text = "".join(str(example.values[0]) for example in EXAMPLES)
    for name in ("RedisCluster(", "AsyncRedisCluster(", "use_strategy(", "check_policy("):
        assert name in text
    for name in ("connect_etcd3(", "connect_aetcd(", "RoutingChannel(", "endpoint_policy="):
        assert name in text


@pytest.mark.parametrize("code", EXAMPLES)
def test_an_example_runs(code: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Only the addresses are changed; clients that the example leaves open are closed here."""
    if "port=6379" in code:
        servers: RedisClusterServers = request.getfixturevalue("servers")
        code = code.replace("port=6379", f"port={servers.port}")
    if "2379" in code:
        etcd: EtcdServers = request.getfixturevalue("etcd")
        for number, endpoint in zip(("", "2", "3"), etcd.endpoints, strict=True):
            code = code.replace(f"127.0.0.1:{number}2379", endpoint)
        code = code.replace("port=2379", f"port={etcd.endpoints[0].rpartition(':')[2]}")
        trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
        code = code.replace("ca.pem", str(tmp_path / "ca.pem"))
    if "2181" in code:
        zookeeper: ZooKeeperServers = request.getfixturevalue("zookeeper")
        for port, endpoint in zip(("2181", "2182", "2183"), zookeeper.endpoints, strict=True):
            code = code.replace(f"127.0.0.1:{port}", endpoint)
        zookeeper.clear()
    namespace: dict[str, Any] = {}
    compiled = compile(code, "example", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if compiled.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(compiled, namespace))
    else:
        exec(compiled, namespace)
        for value in namespace.values():
            if isinstance(value, redis.RedisCluster | valkey.ValkeyCluster):
                value.close()
