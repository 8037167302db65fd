"""TLS: for the session that writes, those that read, and the polls.

Debian's ZooKeeper has no Netty, without which servers speak no TLS; so each real server stands
behind something that ends TLS in front of it.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import trustme

from bench.servers.process import free_ports
from bench.servers.zookeeper import ZooKeeperServers
from tests.integration.zookeeper.conftest import Connector

pytestmark = pytest.mark.integration


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
    finally:
        writer.transport.abort()  # TLS would take its time to say goodbye


async def _serve(port: int, upstream: int, context: ssl.SSLContext) -> asyncio.Server:
    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_server = await asyncio.open_connection("127.0.0.1", upstream)
        await asyncio.gather(_copy(reader, to_server[1]), _copy(to_server[0], writer))

    return await asyncio.start_server(forward, "127.0.0.1", port, ssl=context)


@contextmanager
def tls_in_front(servers: ZooKeeperServers, authority: trustme.CA) -> Iterator[list[str]]:
    """Yield an endpoint for each server that speaks TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    ports = free_ports(len(servers.servers))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    listening: list[asyncio.Server] = []
    try:
        for port, server in zip(ports, servers.servers, strict=True):
            serving = _serve(port, server.ports.client, context)
            listening.append(asyncio.run_coroutine_threadsafe(serving, loop).result(10.0))
        yield [f"127.0.0.1:{port}" for port in ports]
    finally:

        async def end() -> None:
            for server in listening:
                server.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await asyncio.sleep(0.1)  # what was aborted is gone in the loop's next rounds

        asyncio.run_coroutine_threadsafe(end(), loop).result(10.0)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10.0)
        loop.close()


def test_every_connection_is_encrypted_and_checked(
    zookeeper: ZooKeeperServers, connect: Connector, tmp_path: Path
) -> None:
    authority = trustme.CA()
    file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    with tls_in_front(zookeeper, authority) as endpoints:
        client = connect(
            ",".join(endpoints), timeout=20.0, use_ssl=True, ca=str(file), check_hostname=True
        )
        leads = zookeeper.servers.index(zookeeper.leader())
        client.create("/node", b"value")
        deadline = time.monotonic() + 20.0
        while client.session_endpoint != endpoints[leads] or not all(
            stats.picks for stats in client.endpoint_stats().values()
        ):
            assert time.monotonic() < deadline
            assert client.get("/node")[0] == b"value"
        assert client.leader == endpoints[leads]
        client.stop()
        client.close()
