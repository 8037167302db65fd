"""Endpoints as people write them, and those that members advertise."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lb_strategies_etcd._endpoints import (
    Endpoint,
    advertised_endpoint,
    parse_endpoint,
    parse_endpoints,
)


@pytest.mark.parametrize(
    ("text", "name", "scheme"),
    [
        ("10.0.0.1:2379", "10.0.0.1:2379", ""),
        ("etcd-0.Example.COM:2379", "etcd-0.example.com:2379", ""),
        ("  etcd:1\n", "etcd:1", ""),
        ("etcd:02379", "etcd:2379", ""),
        ("unix:2379", "unix:2379", ""),
        ("http://10.0.0.1:2379", "10.0.0.1:2379", "http"),
        ("HTTPS://etcd:2379/", "etcd:2379", "https"),
        ("dns:///etcd:2379", "etcd:2379", ""),
        ("[::1]:2379", "[::1]:2379", ""),
        ("[0:0:0:0:0:0:0:1]:2379", "[::1]:2379", ""),
        ("https://[FE80::A]:65535", "[fe80::a]:65535", "https"),
        ("0.0.0.0:2379", "0.0.0.0:2379", ""),  # the user's own business
    ],
)
def test_the_forms_that_etcd_takes(text: str, name: str, scheme: Any) -> None:
    endpoint = parse_endpoint(text)
    assert endpoint == Endpoint(name, scheme)
    assert endpoint.target == f"dns:///{name}"
    assert parse_endpoint(name).name == name


@pytest.mark.parametrize(
    ("text", "host"), [("https://[::1]:1", "::1"), ("a.b:1", "a.b"), ("127.0.0.1:1", "127.0.0.1")]
)
def test_the_host_is_what_a_certificate_names(text: str, host: str) -> None:
    assert parse_endpoint(text).host == host


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "etcd",
        "etcd:",
        ":2379",
        "etcd:0",
        "etcd:65536",
        "etcd:-1",
        "etcd:+1",
        "etcd:٢٣",
        "etcd:client",
        "http://etcd",
        "http://",
        "https:etcd:2379",
        "http://https://etcd:1",
        "unix:///var/run/etcd.sock",
        "unixs:etcd.sock:1",
        "ftp://etcd:2379",
        "dns://8.8.8.8/etcd:2379",
        "http://etcd:2379/v3",
        "http://etcd:2379?x=1",
        "http://user:secret@etcd:2379",
        "etcd1:2379,etcd2:2379",
        "etcd:23 79",
        "[etcd]:2379",
        "[::1]",
        "[::1:2379",
        "[fe80::1%eth0]:2379",
        "a:b:2379",
    ],
)
def test_anything_else_names_the_option_and_the_value(text: str) -> None:
    with pytest.raises(ValueError, match=r"^seeds must ") as caught:
        parse_endpoint(text, option="seeds")
    if "secret" not in text:
        assert repr(text) in str(caught.value)


def test_a_password_in_a_url_does_not_get_into_the_message() -> None:
    with pytest.raises(ValueError, match=r"^endpoints must ") as caught:
        parse_endpoint("http://user:secret@etcd:2379")
    assert "secret" not in str(caught.value)
    assert "etcd:2379" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("::1", "[::1]:2379"),
        ("http://fe80::1", "[fe80::1]:2379"),
        ("2001:db8::7", "[2001:db8::7]:2379"),
        ("2001:db8:0:0:0:0:0:7:2379", "[2001:db8:0:0:0:0:0:7]:2379"),
    ],
)
def test_a_bare_ipv6_address_is_told_how_to_be_written(text: str, written: str) -> None:
    with pytest.raises(ValueError, match="brackets") as caught:
        parse_endpoint(text)
    assert written in str(caught.value)


def test_an_ambiguous_one_is_taken_for_a_host_with_a_port() -> None:
    with pytest.raises(ValueError, match=r'as in "\[::1\]:2379", got \'::1:2379\''):
        parse_endpoint("::1:2379")


@pytest.mark.parametrize("text", [None, 5, b"etcd:2379", ("etcd", 2379)], ids=repr)
def test_an_endpoint_is_a_string(text: Any) -> None:
    with pytest.raises(TypeError, match="endpoints must hold addresses as str, got "):
        parse_endpoints([text])


@pytest.mark.parametrize("endpoints", ["etcd:2379", b"etcd:2379", None, 5], ids=repr)
def test_endpoints_are_several(endpoints: Any) -> None:
    with pytest.raises(TypeError, match="endpoints must be several addresses, got "):
        parse_endpoints(endpoints)


def test_no_endpoint_is_an_error() -> None:
    with pytest.raises(ValueError, match="seeds must name at least one member, got none"):
        parse_endpoints([], option="seeds")


@pytest.mark.parametrize(
    ("first", "second"),
    [("etcd:1", "etcd:1"), ("etcd:1", "http://ETCD:1/"), ("[::1]:1", "https://[0::1]:1")],
)
def test_the_same_endpoint_twice_is_an_error(first: str, second: str) -> None:
    with pytest.raises(ValueError, match=r"endpoints must be different, got .*:1 twice"):
        parse_endpoints(["other:1", first, second])


def test_endpoints_keep_their_order() -> None:
    names = ["c:1", "a:1", "b:1"]
    assert [endpoint.name for endpoint in parse_endpoints(iter(names))] == names
    assert len(parse_endpoints(["alone:1"])) == 1


@pytest.mark.parametrize(
    ("text", "has_credentials", "uses_tls"),
    [
        ("etcd:1", False, False),
        ("etcd:1", True, True),
        ("http://etcd:1", False, False),
        ("http://etcd:1", True, False),
        ("https://etcd:1", True, True),
    ],
)
def test_the_scheme_decides_on_tls(text: str, has_credentials: bool, uses_tls: bool) -> None:
    assert parse_endpoint(text).uses_tls(has_credentials=has_credentials) is uses_tls


def test_https_needs_credentials() -> None:
    with pytest.raises(ValueError, match="https://etcd:1 needs credentials"):
        parse_endpoint("https://etcd:1").uses_tls(has_credentials=False)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://10.0.0.1:2379", "10.0.0.1:2379"),
        ("https://etcd-0.etcd:2379", "etcd-0.etcd:2379"),
        ("http://[::1]:2379", "[::1]:2379"),
        ("http://0.0.0.0:2379", None),
        ("http://[::]:2379", None),
        ("https://[0:0::0]:2379", None),
        ("unix://sock", None),
        ("http://etcd", None),
        ("", None),
    ],
)
def test_a_wildcard_that_a_member_advertises_is_not_dialled(url: str, name: str | None) -> None:
    endpoint = advertised_endpoint(url)
    assert (endpoint and endpoint.name) == name


@given(st.text())
def test_no_text_breaks_the_parser(text: str) -> None:
    try:
        endpoint = parse_endpoint(text)
    except ValueError:
        return
    assert parse_endpoint(endpoint.name).name == endpoint.name


@given(st.ip_addresses(), st.integers(1, 65535), st.sampled_from(["", "http://", "https://"]))
def test_every_address_can_be_written(address: Any, port: int, scheme: str) -> None:
    host = f"[{address}]" if address.version == 6 else str(address)
    endpoint = parse_endpoint(f"{scheme}{host}:{port}")
    assert endpoint.name == f"{host}:{port}"
    assert (advertised_endpoint(endpoint.name) is None) is address.is_unspecified
