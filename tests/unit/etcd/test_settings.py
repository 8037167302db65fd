"""What a routing channel is made of, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import grpc
import pytest

from lb_strategies import EndpointPolicy
from lb_strategies_etcd._settings import Settings

MEMBERS = ("a:1", "b:2")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"channels_per_member": 0}, ValueError, "channels_per_member must be 1 to 64, got 0"),
        ({"channels_per_member": 65}, ValueError, "channels_per_member must be 1 to 64, got 65"),
        ({"channels_per_member": True}, TypeError, "channels_per_member must be an int, got True"),
        ({"channels_per_member": 2.0}, TypeError, "channels_per_member must be an int, got 2.0"),
        ({"user": "root"}, ValueError, "user and password go together, got no password"),
        ({"password": "hush"}, ValueError, "user and password go together, got no user"),
        ({"endpoint_policy": "all"}, TypeError, "endpoint_policy must be an EndpointPolicy"),
    ],
)
def test_bad_options_are_named(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        Settings(MEMBERS, **options)


def test_endpoints_are_needed_and_differ() -> None:
    with pytest.raises(ValueError, match="endpoints must name at least one member, got none"):
        Settings(())
    with pytest.raises(ValueError, match="a:1 twice"):
        Settings(("a:1", "http://A:1"))


def test_tls_needs_credentials() -> None:
    with pytest.raises(ValueError, match="endpoint https://a:1 needs credentials, got None"):
        Settings(("https://a:1",))


def test_a_member_is_secure_as_its_endpoint_says() -> None:
    credentials = grpc.ssl_channel_credentials()
    settings = Settings(("a:1", "http://b:2", "https://c:3"), credentials=credentials)
    assert [settings.is_secure(member) for member in settings.members] == [True, False, True]
    assert settings.is_secure("found:4")
    assert not Settings(MEMBERS).is_secure("found:4")


def test_the_password_is_not_shown() -> None:
    assert "hush" not in repr(Settings(MEMBERS, user="root", password="hush"))


def test_nothing_lets_grpc_retry_by_itself() -> None:
    settings = Settings(MEMBERS, channel_options=[("grpc.enable_retries", 1), ("grpc.x", 2)])
    options = settings.options(0)
    assert ("grpc.x", 2) in options
    assert dict(options)["grpc.enable_retries"] == 0
    assert options[-1] == ("grpc.enable_retries", 0), "the last one counts"


def test_further_channels_to_a_member_share_no_connection() -> None:
    first, second, third = (Settings(MEMBERS).options(index) for index in range(3))
    assert first != second != third
    assert ("grpc.use_local_subchannel_pool", 1) in second


def test_a_policy_is_taken() -> None:
    policy = EndpointPolicy(MEMBERS)
    assert Settings(MEMBERS, endpoint_policy=policy).endpoint_policy is policy
