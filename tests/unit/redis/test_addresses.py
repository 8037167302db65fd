"""What becomes of the addresses that servers name, case by case."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from redis.exceptions import AskError, MovedError

from lb_strategies import EndpointPolicy
from lb_strategies_redis import EndpointRefusedError
from lb_strategies_redis._addresses import Addresses, split, unbind


def addresses(policy: EndpointPolicy | None = None, remap: Any = None) -> Addresses:
    found = Addresses(policy)
    manager = SimpleNamespace(address_remap=remap)
    found.bind(manager, [SimpleNamespace(name="seed:1")])
    return found


def listed(**nodes: str) -> dict[str, dict[str, str]]:
    """Return what redis-py makes of CLUSTER NODES: flags by ``host_port``."""
    return {
        name.replace("_", ":"): {"flags": flags, "hostname": f"name-of-{name[0]}"}
        for name, flags in nodes.items()
    }


@pytest.mark.parametrize("asked", ["asked", "::1"])
@pytest.mark.parametrize(
    ("host", "dialled"), [(b"a", "a"), ("a", "a"), (b"", None), ("", None), (None, None)], ids=repr
)
def test_a_null_or_empty_host_is_the_one_that_was_asked(
    host: Any, dialled: str | None, asked: str
) -> None:
    reply = [[0, 5, [host, 1, b"id", []], [host, 2]]]
    expected = dialled or asked
    assert addresses().usable(reply, asked) == [[0, 5, [expected, 1, b"id", []], [expected, 2]]]


@pytest.mark.parametrize("server", [[b"?", 1], ["?", 1], ["a", 0], [None, 0], [b"", 0]], ids=repr)
def test_what_is_no_address_is_left_out(
    server: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    found = addresses()
    reply = [[0, 1, ["a", 1], server, ["c", 3]], [2, 3, server, ["c", 3]], [4, 5, ["a", 1]]]
    for _ in range(2):
        assert found.usable(reply, "asked") == [[0, 1, ["a", 1], ["c", 3]], [4, 5, ["a", 1]]]
    assert "(that is no address)" in found.note()
    assert len(caplog.records) == 1  # and not again with every refresh
    found.usable([[0, 5, ["a", 1]]], "asked")
    assert found.note() == ""


def test_a_reply_without_a_usable_primary_is_an_error_and_an_empty_one_is_redis_pys() -> None:
    with pytest.raises(EndpointRefusedError, match=r"no usable primary; left out: \?:1 \(that"):
        addresses().usable([[0, 1, ["?", 1], ["a", 2]]], "asked")
    assert addresses().usable([], "asked") == []


def test_the_note_names_five_addresses_at_most() -> None:
    found = addresses(EndpointPolicy())
    found.usable([[0, 1, ["seed", 1], *(["x", port] for port in range(2, 20))]], "seed")
    assert found.note().count("endpoint_policy allows configured addresses only") == 5


def test_the_policy_judges_what_address_remap_returns() -> None:
    found = addresses(EndpointPolicy(["proxy:7"]), lambda address: ("proxy", address[1] + 1))
    assert found.resolve("inner", 6) == ("proxy", 7)
    assert found.resolve("inner", 7) is None
    assert (found(("inner", 6)), found(("inner", 7))) == (("proxy", 7), ("inner", 7))
    assert addresses(EndpointPolicy()).resolve("seed", 1) == ("seed", 1)


def test_the_remap_of_the_user_survives_two_strategies_and_returns() -> None:
    def remap(address: tuple[str, int]) -> tuple[str, int]:
        return address

    manager = SimpleNamespace(address_remap=remap)
    for _ in range(2):
        found = Addresses(None)
        found.bind(manager, [])
        assert manager.address_remap is found
        assert found.remap is remap
    for _ in range(2):
        unbind(manager)
        assert manager.address_remap is remap


def test_nodes_made_without_us_are_accepted_if_they_are_what_we_would_have_made() -> None:
    nodes = [SimpleNamespace(host="seed", port=1), SimpleNamespace(host="b", port=2)]
    assert addresses().accept_all(nodes)
    assert not addresses(EndpointPolicy()).accept_all(nodes)
    assert not addresses(EndpointPolicy(endpoint_map={"b:2": "c:2"})).accept_all(nodes[1:])
    for host, port in ((None, 1), ("", 1), ("?", 1), ("a", 0)):
        assert not addresses().accept_all([SimpleNamespace(host=host, port=port)])


@pytest.mark.parametrize(
    ("said", "dialled"),
    [
        ("9 a:1", ("a", 101)),
        ("9 :1", ("asked", 101)),
        ("9 ::1:6", ("::1", 106)),
        ("9 ?:1", ("?", 1)),
        ("9 a:0", ("a", 100)),
    ],
)
@pytest.mark.parametrize("kind", [AskError, MovedError])
def test_a_redirect_gets_the_address_to_dial(
    kind: type[AskError], said: str, dialled: tuple[str, int]
) -> None:
    def remap(address: tuple[str, int]) -> tuple[str, int]:
        host, port = address
        return host, port if host == "?" else port + 100

    error = kind(said)
    addresses(remap=remap).localise(error, "asked")
    assert (error.host, error.port) == error.node_addr == dialled
    assert error.message == said


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("9 ?:1", "MOVED to ?:1 is not followed: that is no address"),
        ("9 a:0", "MOVED to a:0 is not followed: that is no address"),
        ("9 :0", "MOVED to asked:0 is not followed: that is no address"),
        ("9 a:1", "MOVED to a:1 is not followed: endpoint_policy allows configured addresses only"),
    ],
)
def test_a_redirect_that_is_refused_is_not_looked_into(said: str, reason: str) -> None:
    found, error = addresses(EndpointPolicy()), MovedError(said)
    found.localise(error, "asked")
    with pytest.raises(EndpointRefusedError) as caught:
        found.check(error)
    assert str(caught.value) == reason


def test_an_address_that_nobody_confirmed_is_refused_for_a_while() -> None:
    found, error = addresses(), AskError("9 a:1")
    found.localise(error, "asked")
    found.check(error)
    message = "ASK to a:1 is not followed: no known node lists it, which endpoint_policy asks for"
    assert str(found.unconfirmed(error)) == message
    with pytest.raises(EndpointRefusedError, match=message):
        found.check(error)
    found._refused_at["a", 1] -= 2  # two seconds later
    found.check(error)
    found.unconfirmed(error)
    with pytest.raises(EndpointRefusedError, match=message):
        found.check(error)
    other = AskError("9 a:2")
    found.localise(other, "asked")
    found.check(other)


def test_refused_addresses_are_not_remembered_without_bound() -> None:
    found = addresses()
    for port in range(1, 5000):
        found.unconfirmed(AskError(f"9 a:{port}"))
    assert len(found._refused_at) <= 1024


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("9 a:1", True),
        ("9 name-of-a:1", True),  # as its announced name
        ("9 :1", True),  # where the host is unknown to the servers, the port tells
        ("9 a:2", False),
        ("9 b:1", False),
        ("9 c:3", False),  # nobody has met it yet
        ("9 d:4", False),
        ("9 :3", False),
    ],
)
def test_an_address_is_confirmed_by_the_list_of_nodes(said: str, expected: bool) -> None:
    nodes = listed(a_1="myself,master", b_2="slave", c_3="handshake", d_4="master,noaddr")
    found, error = addresses(), AskError(said)
    found.localise(error, "asked")
    assert found.is_listed(error, nodes) is expected


def test_a_name_is_split_at_its_last_colon() -> None:
    assert split("::1:6379") == ("::1", 6379)
