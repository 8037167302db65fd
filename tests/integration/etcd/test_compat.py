"""The published packages in one process: every etcd3 there is, and aetcd, in any order."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.servers.etcd import EtcdServers

pytestmark = pytest.mark.integration

BESIDE = {name: Path(sys.prefix) / name for name in ("cslab-etcd3", "python3-etcd3")}
"""Where `make setup` puts those that would overwrite etcd3."""

CHECK = """
import etcd3
import etcd3.etcdrpc as rpc
assert etcd3.__file__.startswith({place!r}), etcd3.__file__
client = etcd3.client(port={port})
client.put("key", "value")
assert client.get("key")[0] == b"value"
put = client.transactions.put
assert client.transaction(compare=[client.transactions.value("key") == "value"],
                          success=[put("key", "other")], failure=[])[0]
assert rpc.Compare.EQUAL == 0 and rpc.AlarmType.Name(rpc.NOSPACE) == "NOSPACE"
assert rpc.RangeRequest.SortOrder.Value("DESCEND") == 2
assert [member.name for member in client.members] and client.status().version
"""
CHECK_AETCD = """
import asyncio, aetcd
async def check():
    async with aetcd.Client(port={port}) as client:
        await client.put(b"key", b"value")
        assert (await client.get(b"key")).value == b"value"
asyncio.run(check())
"""
ORDERS = {
    "etcd3": "{install} {etcd3}",
    "etcd3, aetcd": "{install} {etcd3} {aetcd}",
    "aetcd, etcd3": "{install} {aetcd} {etcd3}",
    "aetcd, install, etcd3": "{aetcd} {install} {etcd3}",
    "etcd3, install again, aetcd": "{install} {etcd3} {install} {aetcd}",
}
INSTALL = """
from lb_strategies_etcd.compat import install
install()
"""


@pytest.mark.parametrize("package", ["etcd3", *BESIDE])
@pytest.mark.parametrize(
    ("order", "implementation"), [*((order, "upb") for order in ORDERS), ("etcd3, aetcd", "python")]
)
def test_each_package_works_in_any_order(
    etcd: EtcdServers, package: str, order: str, implementation: str
) -> None:
    place = BESIDE.get(package)
    assert place is None or place.is_dir(), f"make setup installs {package}"
    port = int(etcd.endpoints[0].rpartition(":")[2])
    code = ORDERS[order].format(
        install=INSTALL,
        etcd3=CHECK.format(place=str(place or sys.prefix), port=port),
        aetcd=CHECK_AETCD.format(port=port),
    )
    first = f"import sys; sys.path[:0] = [{str(place)!r}] if {place is not None} else []\n"
    subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", first + code],
        env={"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": implementation},
        check=True,
        timeout=50,
    )


def test_without_it_the_published_etcd3_cannot_be_imported() -> None:
    """If this fails, protobuf or etcd3 has changed, and `compat` may go."""
    done = subprocess.run(
        [sys.executable, "-c", "import etcd3"], capture_output=True, text=True, timeout=50
    )
    assert "Descriptors cannot be created directly" in done.stderr
