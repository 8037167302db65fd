"""How long a connection may take to be made."""

import socket
import threading
import time

import grpc
import pytest

from lb_strategies_etcd import RoutingChannel

pytestmark = pytest.mark.integration


def test_a_connection_may_take_a_second_to_be_made() -> None:
    """TLS over a link of 250 ms, or a busy machine, needs that; with less it is never made."""
    patience: list[float] = []

    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept_and_say_nothing() -> None:
            connection, _ = server.accept()
            with connection:
                accepted_at = time.monotonic()
                connection.settimeout(20)
                while connection.recv(4096):
                    pass
                patience.append(time.monotonic() - accepted_at)

        thread = threading.Thread(target=accept_and_say_nothing, daemon=True)
        thread.start()
        port = server.getsockname()[1]
        with RoutingChannel([f"127.0.0.1:{port}"]) as channel:
            ask = channel.unary_unary("/etcdserverpb.KV/Range", bytes, bytes)
            with pytest.raises(grpc.RpcError):
                ask(b"", timeout=1.5)
            thread.join(20)
    assert patience
    assert patience[0] > 0.8
