"""Connection strings, names of several servers, and addresses of connections."""

import pytest

from lb_strategies_zookeeper._hosts import (
    Address,
    Directory,
    expand,
    join_address,
    lookup,
    parse_hosts,
    split_endpoint,
)


@pytest.mark.parametrize(
    ("hosts", "members", "chroot"),
    [
        ("zk1:2181,zk2:2182", ("zk1:2181", "zk2:2182"), ""),
        ("zk1, zk2:1/app/one", ("zk1:2181", "zk2:1"), "/app/one"),
        (["zk1:1", "zk2:2", "/app"], ("zk1:1", "zk2:2"), "/app"),
        ("[::1]:7,zk1:7", ("[::1]:7", "zk1:7"), ""),
        ("zk1:7,zk2:7,zk1:7", ("zk1:7", "zk2:7"), ""),
    ],
)
def test_connection_strings(hosts: str | list[str], members: tuple[str, ...], chroot: str) -> None:
    assert parse_hosts(hosts) == (members, chroot)


@pytest.mark.parametrize("hosts", ["", ":2181", "zk1:port"])
def test_a_connection_string_without_a_host_is_refused(hosts: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 -- kazoo's or the standard library's own
        parse_hosts(hosts)


@pytest.mark.parametrize("address", [("zk1", 2181), ("::1", 7), ("10.0.0.1", 1)])
def test_endpoints_come_apart_again(address: Address) -> None:
    assert split_endpoint(join_address(*address)) == address


NAMES: dict[str, tuple[Address, ...]] = {
    "zk:7": (("10.0.0.1", 7), ("10.0.0.2", 7), ("10.0.0.1", 7)),
    "one:7": (("10.0.0.3", 7),),
    "localhost:7": (("::1", 7), ("127.0.0.1", 7)),
    "six:7": (("fd00::1", 7), ("fd00::2", 7), ("10.0.0.4", 7)),
}


def resolve(endpoint: str) -> tuple[Address, ...]:
    return NAMES.get(endpoint, ())


def test_a_name_of_several_servers_is_several_endpoints() -> None:
    assert expand(["zk:7"], resolve) == ("10.0.0.1:7", "10.0.0.2:7")
    assert expand(["six:7"], resolve) == ("[fd00::1]:7", "[fd00::2]:7")


def test_a_name_of_one_server_stays_a_name() -> None:
    names = ("one:7", "localhost:7", "unknown:7")
    assert expand(names, resolve) == names


def test_an_address_belongs_to_the_name_it_was_found_by() -> None:
    directory = Directory(resolve)
    endpoints = ("one:7", "localhost:7", "10.0.0.9:7")
    assert directory.find(("10.0.0.9", 7), endpoints) == "10.0.0.9:7"
    assert directory.find(("10.0.0.3", 7), endpoints) == "one:7"
    assert directory.find(("::1", 7), endpoints) == "localhost:7"
    assert directory.find(("10.0.0.3", 8), endpoints) is None
    assert directory.find(("10.0.0.3", 7), ("localhost:7",)) is None


def test_a_name_is_looked_up_again_when_its_address_is_new() -> None:
    names: dict[str, tuple[Address, ...]] = {"one:7": (("10.0.0.3", 7),)}
    directory = Directory(lambda endpoint: names[endpoint])
    assert directory.find(("10.0.0.3", 7), ["one:7"]) == "one:7"
    names["one:7"] = (("10.0.0.4", 7),)
    assert directory.find(("10.0.0.4", 7), ["one:7"]) == "one:7"


def test_looking_up() -> None:
    assert lookup("127.0.0.1:7") == (("127.0.0.1", 7),)
    assert lookup("no such host:7") == ()
