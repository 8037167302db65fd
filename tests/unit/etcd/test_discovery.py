"""Following the members of a cluster by what they advertise."""

from __future__ import annotations

import logging
import random

import pytest

from lb_strategies import EndpointPolicy
from lb_strategies_etcd._discovery import Discovery
from lb_strategies_etcd._endpoints import parse_endpoints
from lb_strategies_etcd._wire import Header, Member, MemberList

POLICY = EndpointPolicy(["c:1", "d:1"], endpoint_map={"inside:9": "outside:1", "odd:1": "::1:1"})
ANYBODY = EndpointPolicy(allow_unlisted=True)


def make(
    *endpoints: str, policy: EndpointPolicy = POLICY, tls: bool = False, polled: bool = True
) -> Discovery:
    configured = {e.name: e for e in parse_endpoints(endpoints or ("a:1", "b:1"))}
    found = Discovery(configured, policy, has_credentials=tls, rng=random.Random(1))
    for number, name in enumerate(configured if polled else (), start=1):
        found.polled(name, number)
    return found


def listed(*members: tuple[int, str], learners: tuple[int, ...] = ()) -> MemberList:
    """A list of members by id and URLs, which blanks separate."""
    return MemberList(
        Header(1, 0, 2, 0),
        tuple(Member(i, f"m{i}", tuple(urls.split()), i in learners) for i, urls in members),
    )


def members_of(discovery: Discovery, answer: MemberList) -> tuple[str, ...]:
    discovery.listed(answer, now=0.0)
    return discovery.members


def test_nothing_is_listed_before_everybody_was_asked_who_it_is() -> None:
    discovery = make(polled=False)
    discovery.polled("a:1", 1)
    assert not discovery.begin(now=0.0, term=2)
    discovery.polled("b:1", None)  # it did not answer
    assert discovery.begin(now=0.0, term=2)


def test_one_list_at_a_time() -> None:
    """An attempt ends within three seconds, and none begins before, whatever happens."""
    discovery = make()
    assert discovery.begin(now=0.0, term=2)
    assert not discovery.begin(now=2.9, term=3)
    assert discovery.begin(now=3.1, term=3)


def test_a_list_every_half_minute_not_in_step_with_others() -> None:
    intervals = set()
    for seed in range(20):
        discovery = Discovery(
            {"a:1": parse_endpoints(["a:1"])[0]},
            POLICY,
            has_credentials=False,
            rng=random.Random(seed),
        )
        discovery.polled("a:1", 1)
        assert discovery.begin(now=5.0, term=2)
        discovery.listed(listed((1, "http://a:1")), now=5.0)
        assert not discovery.begin(now=5.0, term=2)
        intervals.add(next(n for n in range(400) if discovery.begin(now=5.0 + n / 10, term=2)))
    assert min(intervals) >= 270
    assert max(intervals) <= 331
    assert len(intervals) > 10


def test_a_new_term_asks_for_a_list() -> None:
    discovery = make()
    assert discovery.begin(now=0.0, term=2)
    discovery.listed(listed((1, "http://a:1")), now=0.0)
    assert not discovery.begin(now=4.0, term=2)
    assert discovery.begin(now=4.0, term=3)
    discovery.listed(listed((1, "http://a:1")), now=4.0)
    assert not discovery.begin(now=8.0, term=3)


def test_what_failed_is_tried_again_soon() -> None:
    discovery = make()
    assert discovery.begin(now=0.0, term=2)
    discovery.listed(listed((1, "http://a:1")), now=0.0)
    assert discovery.begin(now=40.0, term=2)
    discovery.failed(OSError())
    assert not discovery.begin(now=42.0, term=2)
    assert discovery.begin(now=43.1, term=2)


def test_a_configured_address_is_taken_and_configured_members_stay() -> None:
    discovery = make()
    assert discovery.listed(listed((1, "http://a:1"), (3, "http://c:1")), now=0.0)
    assert not discovery.listed(listed((1, "http://a:1"), (3, "http://c:1")), now=0.0)
    assert members_of(discovery, listed((1, "http://a:1"), (3, "http://c:1")))[2:] == ("c:1",)
    assert members_of(discovery, listed((1, "http://a:1"))) == ("a:1", "b:1")


def test_a_mapped_address_is_dialled_as_the_map_says() -> None:
    assert members_of(make(), listed((3, "http://inside:9"))) == ("a:1", "b:1", "outside:1")


def test_others_are_refused_and_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    discovery = make()
    with caplog.at_level(logging.WARNING, logger="lb_strategies"):
        for _ in range(3):
            assert members_of(discovery, listed((3, "http://evil:1"))) == ("a:1", "b:1")
    assert [record.getMessage() for record in caplog.records] == [
        "evil:1 is advertised by a member and not dialled: it is neither configured nor mapped"
    ]


def test_others_are_taken_if_the_policy_says_so() -> None:
    answer = listed((3, "http://other:1"))
    assert members_of(make(policy=ANYBODY), answer) == ("a:1", "b:1", "other:1")


@pytest.mark.parametrize(
    "url", ["http://0.0.0.0:2379", "http://[::]:2379", "unix:///run/etcd", "http://", "nonsense"]
)
def test_what_cannot_be_dialled_is_ignored(url: str) -> None:
    assert members_of(make(policy=ANYBODY), listed((3, url))) == ("a:1", "b:1")


def test_a_map_to_something_that_is_no_endpoint_is_told(caplog: pytest.LogCaptureFixture) -> None:
    assert members_of(make(), listed((3, "http://odd:1"))) == ("a:1", "b:1")
    assert "mapped to '::1:1', which is no endpoint" in caplog.text


def test_tls_without_credentials_is_refused() -> None:
    answer = listed((3, "https://c:1"), (4, "https://inside:9"))
    # Where the map leads, the URL's scheme says nothing.
    assert members_of(make(), answer) == ("a:1", "b:1", "outside:1")
    assert members_of(make(tls=True), answer) == ("a:1", "b:1", "c:1", "outside:1")


def test_one_member_is_no_two() -> None:
    """Its advertised name may be another one than the user's; or it advertises several."""
    answer = listed(
        (1, "http://other:1"), (3, "http://x:1 http://y:1"), (2, "http://z:1 http://b:1")
    )
    assert members_of(make(policy=ANYBODY), answer) == ("a:1", "b:1", "x:1")


def test_of_several_urls_the_configured_one_counts() -> None:
    discovery = make(policy=ANYBODY, polled=False)
    assert members_of(discovery, listed((2, "http://z:1 http://b:1"))) == ("a:1", "b:1")


def test_a_member_that_has_not_started_has_no_address() -> None:
    assert members_of(make(policy=ANYBODY), listed((3, ""))) == ("a:1", "b:1")


def test_an_empty_list_changes_nothing() -> None:
    discovery = make(policy=ANYBODY)
    members_of(discovery, listed((3, "http://c:1")))
    assert members_of(discovery, listed()) == ("a:1", "b:1", "c:1")


def test_learners_are_named() -> None:
    discovery = make(policy=ANYBODY)
    members_of(discovery, listed((3, "http://c:1"), (4, "http://d:1"), learners=(4,)))
    assert discovery.learners == {"d:1"}
    members_of(discovery, listed((3, "http://c:1"), (4, "http://d:1")))
    assert discovery.learners == set()


def test_refusals_are_remembered_up_to_a_limit(caplog: pytest.LogCaptureFixture) -> None:
    discovery = make()
    for number in range(1000):
        members_of(discovery, listed((3, f"http://evil{number}:1")))
    assert len(caplog.records) == 256
