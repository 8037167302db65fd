import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from bench.proxy import FaultProxy, Link, ProxyProcess

pytestmark = pytest.mark.integration

MESSAGES_PER_SECOND = 10_000

# Ping-pong on 16 connections for a second, in a process of its own: the test's would share an
# interpreter with the echo server. Prints round trips per second.
PING_PONG = """
import selectors, socket, sys, time
selector = selectors.DefaultSelector()
for _ in range(16):
    connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    selector.register(connection, selectors.EVENT_READ)
    connection.send(b"ping")
count, began_at = 0, time.perf_counter()
while time.perf_counter() < began_at + 1:
    for key, _ in selector.select(1):
        count += len(key.fileobj.recv(64)) // 4
        key.fileobj.send(b"ping")
print(count / (time.perf_counter() - began_at))
"""

ECHO = """
import asyncio
class Echo(asyncio.Protocol):
    def connection_made(self, transport): self.transport = transport
    def data_received(self, data): self.transport.write(data)
async def main():
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
try:
    import uvloop
except ImportError:
    asyncio.run(main())
else:
    uvloop.run(main())
"""


@pytest.fixture(scope="module")
def echo_port() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", ECHO], stdout=subprocess.PIPE, text=True) as echo:
        try:
            assert echo.stdout is not None
            yield int(echo.stdout.readline())
        finally:
            echo.kill()


@pytest.fixture
def proxy(echo_port: int) -> Iterator[FaultProxy]:
    with FaultProxy("127.0.0.1", echo_port, seed=1) as started:
        yield started


def connect(proxy: Link) -> socket.socket:
    connection = socket.create_connection((proxy.host, proxy.port), timeout=5)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def round_trip(connection: socket.socket, message: bytes = b"hello") -> float:
    """Return the seconds that an echo of ``message`` took."""
    began_at = time.perf_counter()
    connection.sendall(message)
    received = b""
    while len(received) < len(message):
        received += connection.recv(len(message) - len(received))
    assert received == message
    return time.perf_counter() - began_at


def test_a_delay_is_given_as_asked_and_reported(proxy: FaultProxy) -> None:
    """200 uniform draws of 8 +- 2 ms: the mean deviates by 0.08 ms; a busy machine adds."""
    with connect(proxy) as connection:
        plain = statistics.median(round_trip(connection) for _ in range(50))
        proxy.delay(0.008, jitter=0.002)
        delayed = [round_trip(connection) for _ in range(200)]
        proxy.undo()
        assert statistics.median(round_trip(connection) for _ in range(50)) < plain + 0.004
    assert min(delayed) >= 0.006
    assert 0.0076 < statistics.median(delayed) - plain < 0.010
    given = proxy.stats()["delays"]
    assert len(given) == 200
    assert 0.0076 < statistics.median(given) < 0.010
    assert min(given) >= 0.006


def test_replies_keep_their_order_under_jitter(proxy: FaultProxy) -> None:
    proxy.delay(0.005, jitter=0.005)
    sent = b"".join(b"%06d" % i for i in range(300))
    with connect(proxy) as connection:

        def send() -> None:
            for start in range(0, len(sent), 6):
                connection.sendall(sent[start : start + 6])
                time.sleep(0.0005)

        sender = threading.Thread(target=send)
        sender.start()
        received = b""
        while len(received) < len(sent):
            received += connection.recv(65536)
        sender.join()
    assert received == sent


def test_a_stall_holds_everything_back_until_it_is_undone(proxy: FaultProxy) -> None:
    with connect(proxy) as old:
        round_trip(old)
        proxy.stall()
        old.sendall(b"old")
        old.settimeout(0.2)
        with pytest.raises(TimeoutError):
            old.recv(10)
        with connect(proxy) as new:
            new.sendall(b"new")
            proxy.undo()
            old.settimeout(5)
            assert old.recv(10) == b"old"
            assert new.recv(10) == b"new"


@pytest.mark.alone
def test_a_stall_also_holds_back_delayed_replies(proxy: FaultProxy) -> None:
    proxy.delay(0.05)
    with connect(proxy) as connection:
        connection.sendall(b"late")
        time.sleep(0.02)
        proxy.stall()
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(10)
        proxy.undo()
        connection.settimeout(5)
        assert connection.recv(10) == b"late"


def test_a_cut_resets_and_refuses_until_it_is_undone(proxy: FaultProxy) -> None:
    with connect(proxy) as connection:
        round_trip(connection)
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            connection.recv(10)
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    proxy.undo()
    with connect(proxy) as connection:
        round_trip(connection)


def test_a_dead_upstream_looks_like_a_reset() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with (
        FaultProxy("127.0.0.1", port) as proxy,
        pytest.raises(ConnectionResetError),  # on connecting already, if this thread is late
        connect(proxy) as connection,
    ):
        connection.recv(10)


def test_a_patient_link_waits_for_a_server_that_does_not_listen_yet() -> None:
    """The link listens at another address, so that both can have the same port."""
    with socket.socket() as server, ProxyProcess() as process:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        link = process.open(
            "127.0.0.1", port, listen_on=port, listen_host="127.0.0.2", patience=20.0
        )
        assert link.endpoint == f"127.0.0.2:{port}"
        with connect(link) as connection:
            connection.sendall(b"early")
            time.sleep(0.1)
            server.listen()
            server.settimeout(20)
            accepted, _ = server.accept()
            with accepted:
                assert accepted.recv(10) == b"early"


def test_requests_can_have_a_jitter_of_their_own(proxy: FaultProxy) -> None:
    proxy.delay(0.0, request=0.010, request_jitter=0.008)
    with connect(proxy) as connection:
        for _ in range(50):
            round_trip(connection)
    given = proxy.stats()["request_delays"]
    assert 0.002 <= min(given) < 0.010
    with pytest.raises(ValueError, match="requests"):
        proxy.delay(0.010, request=0.001, request_jitter=0.002)


def test_nothing_listens_after_the_block(echo_port: int) -> None:
    with FaultProxy("127.0.0.1", echo_port) as proxy:
        connect(proxy).close()
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)


def test_requests_can_be_held_back_too_and_are_not_lost_before_the_server_answers(
    proxy: FaultProxy,
) -> None:
    proxy.delay(0.010, request=0.020)
    with connect(proxy) as connection:
        assert min(round_trip(connection) for _ in range(10)) >= 0.030
    given = proxy.stats()
    assert (len(given["delays"]), len(given["request_delays"])) == (10, 10)
    assert min(given["delays"]) >= 0.010
    assert min(given["request_delays"]) >= 0.020


def test_what_is_held_back_arrives_although_the_sender_has_closed() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        FaultProxy("127.0.0.1", server.getsockname()[1]) as proxy,
    ):
        proxy.delay(0.05)
        with connect(proxy) as connection:
            upstream, _ = server.accept()
            upstream.sendall(b"last words")
            upstream.close()
            assert connection.recv(20) == b"last words"
            assert connection.recv(20) == b""


def test_links_of_one_process_are_independent(echo_port: int) -> None:
    with ProxyProcess() as process:
        first, second = (process.open("127.0.0.1", echo_port) for _ in range(2))
        first.cut()
        with connect(second) as connection:
            round_trip(connection)
        with pytest.raises(ConnectionRefusedError):
            connect(first)
        assert first.stats()["messages"] == 0
        assert second.stats()["messages"] == 2


def test_a_process_is_refused_and_others_are_not(echo_port: int) -> None:
    with ProxyProcess() as process, ProxyProcess() as other:
        link = process.open("127.0.0.1", echo_port)
        through = other.open(link.host, link.port)
        with connect(link) as ours, connect(through) as theirs:
            round_trip(ours)
            round_trip(theirs)
            link.refuse([other.pid])
            assert theirs.recv(10) == b""  # reset at the other proxy, which closes this side
            round_trip(ours)
            with connect(through) as again:
                assert again.recv(10) == b""
            link.refuse([])
            with connect(through) as again:
                round_trip(again)


def test_jitter_above_the_delay_is_refused(proxy: FaultProxy) -> None:
    with pytest.raises(ValueError, match="jitter"):
        proxy.delay(0.001, jitter=0.002)


def test_ten_thousand_messages_per_second_pass(proxy: FaultProxy) -> None:
    """Best of three, since the machine may be shared: a slow proxy is slow every time."""
    rates = []
    for _ in range(3):
        before = proxy.stats()["messages"]
        printed = subprocess.run(
            [sys.executable, "-c", PING_PONG, str(proxy.port)],
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        ).stdout
        rates.append(float(printed))
        assert proxy.stats()["messages"] > before
    assert max(rates) >= MESSAGES_PER_SECOND
