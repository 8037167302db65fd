"""The client of docs/your-own-store.md, as it stands there, against a store on loopback."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parent.parent.parent / "docs" / "your-own-store.md"
LONGEST = 10.0


class Store:
    """Three members; followers forward writes, so each of them answers everything."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.term = 1
        self.asked: Counter[tuple[str, str]] = Counter()
        self.refusals: list[int] = []
        store = self

        class Member(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                store.serve(self, "GET", None)

            def do_PUT(self) -> None:
                length = int(self.headers["Content-Length"])
                store.serve(self, "PUT", json.loads(self.rfile.read(length)))

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.servers = [ThreadingHTTPServer(("127.0.0.1", 0), Member) for _ in range(3)]
        self.members = [f"127.0.0.1:{server.server_port}" for server in self.servers]
        self.leader = self.members[0]
        for server in self.servers:
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()

    def serve(self, request: BaseHTTPRequestHandler, method: str, value: Any) -> None:
        """Answer one request."""
        member = request.headers["Host"]
        body: dict[str, Any] = {"term": self.term, "leader": self.leader}
        status = 200
        if request.path != "/status":
            self.asked[method, member] += 1
            if self.refusals:
                status = self.refusals.pop(0)
            elif method == "PUT":
                self.values[request.path] = value
            else:
                body["value"] = self.values.get(request.path)
        answer = json.dumps(body).encode()
        request.send_response(status)
        request.send_header("Content-Length", str(len(answer)))
        request.end_headers()
        request.wfile.write(answer)

    def stop(self, member: str) -> None:
        """Stop listening."""
        server = self.servers[self.members.index(member)]
        server.shutdown()
        server.server_close()

    def close(self) -> None:
        """Stop all."""
        for member in self.members:
            self.stop(member)


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store()
    yield store
    store.close()


def examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)


@pytest.fixture
def client(store: Store) -> Iterator[Any]:
    namespace: dict[str, Any] = {}
    exec(compile(examples()[0], str(PAGE), "exec"), namespace)
    client = namespace["KeyValueClient"](store.members)
    yield client
    client.close()


def test_the_client_has_at_most_sixty_lines() -> None:
    assert len([line for line in examples()[0].splitlines() if line.strip()]) <= 60


def test_the_page_runs_from_top_to_bottom(store: Store) -> None:
    code = "\n".join(examples())
    for port, member in zip((8001, 8002, 8003), store.members, strict=True):
        code = code.replace(f"127.0.0.1:{port}", member)
    exec(compile(code, str(PAGE), "exec"), {})
    assert store.values == {"/keys/greeting": "hello"}


def test_writes_go_to_the_leader_and_reads_to_everybody(store: Store, client: Any) -> None:
    assert client.wait_for_leader(LONGEST) == store.leader
    for number in range(9):
        client.put("n", number)
        assert client.get("n") == number
    assert store.asked == {
        ("PUT", store.leader): 9,
        **{("GET", member): 3 for member in store.members},
    }


def test_an_election_is_followed(store: Store, client: Any) -> None:
    client.wait_for_leader(LONGEST)
    store.leader, store.term = store.members[2], 2
    client.get("n")
    give_up = time.monotonic() + LONGEST
    while client.leader != store.members[2]:
        assert time.monotonic() < give_up
        time.sleep(0.005)
    client.put("n", 1)
    assert store.asked["PUT", store.members[2]] == 1


def test_a_member_that_is_gone_costs_no_error(store: Store, client: Any) -> None:
    client.wait_for_leader(LONGEST)
    client.put("n", 1)
    gone = store.members[1]
    store.stop(gone)
    assert [client.get("n") for _ in range(6)] == [1] * 6
    store.servers.pop(1)
    store.members.pop(1)


@pytest.mark.parametrize(("status", "attempts"), [(503, 2), (429, 2), (504, 1), (404, 1)])
def test_a_refused_write_is_sent_again_only_if_it_was_not_executed(
    store: Store, client: Any, status: int, attempts: int
) -> None:
    client.wait_for_leader(LONGEST)
    store.refusals = [status]
    if attempts > 1:
        client.put("n", 1)
    else:
        with pytest.raises(Exception, match=str(status)):
            client.put("n", 1)
    assert store.asked.total() == attempts
