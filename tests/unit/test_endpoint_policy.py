"""An address that a server names is dialled only if the policy says so."""

from typing import Any

import pytest

from lb_strategies import EndpointPolicy


def test_only_configured_addresses_are_dialled() -> None:
    policy = EndpointPolicy(["a:1", "b:2"])
    assert policy.resolve("a:1") == "a:1"
    assert policy.resolve("a:2") is None
    assert EndpointPolicy().resolve("a:1") is None
    assert not policy.allow_unlisted


def test_unlisted_addresses_can_be_allowed() -> None:
    policy = EndpointPolicy(["a:1"], allow_unlisted=True)
    assert policy.allow_unlisted
    assert policy.resolve("A:1") == "a:1"
    assert policy.resolve("C:3") == "C:3"


def test_a_mapping_comes_first_and_its_target_needs_no_listing() -> None:
    policy = EndpointPolicy(["a:1"], endpoint_map={"a:1": "proxy:7", "inner:1": "proxy:8"})
    assert policy.resolve("a:1") == "proxy:7"
    assert policy.resolve("inner:1") == "proxy:8"
    assert policy.resolve("proxy:7") == "proxy:7"
    assert policy.resolve("other:1") is None


def test_two_addresses_that_swap_places_are_mapped_once() -> None:
    policy = EndpointPolicy(endpoint_map={"a:1": "b:1", "b:1": "a:1"})
    assert (policy.resolve("a:1"), policy.resolve("b:1")) == ("b:1", "a:1")


def test_case_does_not_matter_and_the_configured_spelling_is_dialled() -> None:
    policy = EndpointPolicy(["Redis-A.example:6379"], endpoint_map={"In:1": "redis-A.EXAMPLE:6379"})
    assert policy.resolve("redis-a.EXAMPLE:6379") == "Redis-A.example:6379"
    assert policy.resolve("IN:1") == "Redis-A.example:6379"
    assert EndpointPolicy(["::1:6379"]).resolve("::1:6379") == "::1:6379"


def test_more_addresses_can_be_configured() -> None:
    policy = EndpointPolicy(["a:1"], endpoint_map={"c:1": "d:1"}).including(["b:2"])
    assert [policy.resolve(e) for e in ("a:1", "b:2", "c:1", "e:1")] == ["a:1", "b:2", "d:1", None]
    assert EndpointPolicy(allow_unlisted=True).including(["b:2"]).resolve("e:1") == "e:1"


@pytest.mark.parametrize(
    "address", ["", "a", "a:", ":1", "?:1", "a:0", "a:65536", "a:-1", "a:x", "a:²"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r'^configured must hold addresses as "host:port", got '):
        EndpointPolicy([address])
    with pytest.raises(ValueError, match=r"^endpoint_map must hold addresses"):
        EndpointPolicy(endpoint_map={address: "b:1"})
    with pytest.raises(ValueError, match=r"^endpoint_map must hold addresses"):
        EndpointPolicy(endpoint_map={"a:1": address})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"configured": "a:1"}, "configured must be several addresses, got 'a:1'"),
        ({"configured": 7}, "configured must be several addresses, got 7"),
        ({"configured": [("a", 1)]}, r"configured must hold addresses as str, got \('a', 1\)"),
        ({"endpoint_map": ["a:1"]}, r"endpoint_map must be a mapping, got \['a:1'\]"),
        ({"allow_unlisted": 1}, "allow_unlisted must be a bool, got 1"),
    ],
)
def test_other_types_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=f"^{message}$"):
        EndpointPolicy(**options)


def test_it_shows_what_it_allows() -> None:
    assert repr(EndpointPolicy(["a:1"], endpoint_map={"b:1": "c:1"})) == (
        "EndpointPolicy(('a:1',), endpoint_map={'b:1': 'c:1'}, allow_unlisted=False)"
    )
