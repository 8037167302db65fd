"""What servers say of themselves."""

import json

import pytest

from lb_strategies import MemberStatus, StatusRefusedError
from lb_strategies_zookeeper._status import parse_admin, parse_word

MEMBER = "zk1:2181"


def word(mode: str, zxid: str = "0x300000007") -> str:
    return (
        "Zookeeper version: 3.8.0-1, built on 2022-02-25 08:49 UTC\n"
        "Latency min/avg/max: 0/0.6364/4\nReceived: 11\nSent: 12\nConnections: 1\n"
        f"Outstanding: 0\nZxid: {zxid}\nMode: {mode}\nNode count: 6\n"
    )


@pytest.mark.parametrize("mode", ["leader", "standalone"])
def test_who_decides_leads(mode: str) -> None:
    expected = MemberStatus(term=3, leader=MEMBER, has_leader=True)
    assert parse_word(MEMBER, word(mode)) == expected


@pytest.mark.parametrize("mode", ["follower", "observer"])
def test_who_follows_has_a_leader_and_does_not_name_it(mode: str) -> None:
    expected = MemberStatus(term=3, leader=None, has_leader=True)
    assert parse_word(MEMBER, word(mode)) == expected


def test_a_server_in_an_election_has_no_leader() -> None:
    answer = "This ZooKeeper instance is not currently serving requests"
    assert parse_word(MEMBER, answer).has_leader is False


def test_a_server_that_is_cut_off_and_read_only_has_no_leader() -> None:
    assert parse_word(MEMBER, word("read-only")).has_leader is False


def test_a_word_that_is_not_allowed_is_no_outage() -> None:
    with pytest.raises(StatusRefusedError, match="whitelist"):
        parse_word(MEMBER, "srvr is not executed because it is not in the whitelist.\n")


@pytest.mark.parametrize(
    "answer", ["", "HTTP/1.1 400 Bad Request", "Mode: leader\n", word("king"), word("leader", "?")]
)
def test_what_no_server_says_is_refused(answer: str) -> None:
    with pytest.raises(ValueError, match=r"does not say|invalid literal"):
        parse_word(MEMBER, answer)


def admin(state: str, error: str | None = None) -> bytes:
    stats = {"server_state": state, "last_processed_zxid": 0x200000001}
    return json.dumps({"server_stats": stats, "error": error}).encode()


def test_the_admin_server_says_the_same() -> None:
    expected = MemberStatus(term=2, leader=MEMBER, has_leader=True)
    assert parse_admin(MEMBER, admin("leader")) == expected
    assert parse_admin(MEMBER, admin("observer")).leader is None
    error = "This ZooKeeper instance is not currently serving requests"
    assert parse_admin(MEMBER, admin("", error)).has_leader is False


@pytest.mark.parametrize("answer", [b"<html>", b"[]", b"{}", b'{"server_stats": {}}'])
def test_what_no_admin_server_says_is_refused(answer: bytes) -> None:
    with pytest.raises(ValueError, match=r"Expecting value|no answer|does not say"):
        parse_admin(MEMBER, answer)
