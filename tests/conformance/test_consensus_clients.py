"""A client of threads and one of tasks do the same: routing, polls, ends and interruptions."""

from __future__ import annotations

import inspect
import logging
import os
import time
import warnings
import weakref
from collections.abc import Hashable, Iterator
from typing import Any

import pytest

from lb_strategies import (
    AsyncConsensusRoutingMixin,
    ConsensusRoutingMixin,
    FailureKind,
    MemberStatus,
)

from .leader_store import (
    QUICK,
    RARE,
    Side,
    StoreError,
    TaskClient,
    Tasks,
    ThreadClient,
    Threads,
    end,
)


@pytest.fixture(params=[Threads, Tasks], ids=["sync", "asyncio"])
def side(request: pytest.FixtureRequest) -> Iterator[Side]:
    side: Side = request.param()
    yield side
    end(side)


class LeavingThreadClient(ThreadClient):
    def _probe_member(self, member: Hashable, timeout: float) -> MemberStatus:
        if member not in self.store.members:
            self._update_members()
        return super()._probe_member(member, timeout)


class LeavingTaskClient(TaskClient):
    async def _probe_member(self, member: Hashable, timeout: float) -> MemberStatus:
        if member not in self.store.members:
            self._update_members()
        return await super()._probe_member(member, timeout)


# -- the same face --------------------------------------------------------------------------


def function_of(member: Any) -> Any:
    """Return the function of a method or property."""
    return member.fget if isinstance(member, property) else member


def described(cls: type) -> dict[str, Any]:
    """Return the signature of every method and property, without what awaiting changes."""
    return {
        name: (
            type(member).__name__,
            inspect.signature(function_of(member)),
            getattr(member, "__isabstractmethod__", False),
            (inspect.getdoc(member) or "").replace("task", "thread"),
        )
        for name, member in vars(cls).items()
        if isinstance(member, property) or (inspect.isfunction(member) and name != "_poll")
    }


def test_both_mixins_have_the_same_methods() -> None:
    assert described(ConsensusRoutingMixin) == described(AsyncConsensusRoutingMixin)


def test_what_waits_is_awaited() -> None:
    waiting = {
        name
        for name, member in vars(AsyncConsensusRoutingMixin).items()
        if inspect.iscoroutinefunction(member)
    }
    assert waiting == {
        "_authenticate",
        "_poll",
        "_probe_member",
        "_retry",
        "_route",
        "_send_to",
        "_stop_routing",
        "wait_for_leader",
    }


# -- routing --------------------------------------------------------------------------------


def test_nothing_happens_before_the_first_request(side: Side) -> None:
    side.open()
    assert side.polls() == 0
    assert (side.client.leader, side.client.leader_term) == (None, -1)


def test_writes_go_to_the_leader_and_reads_to_everybody(side: Side) -> None:
    side.open()
    assert side.wait_for_leader() == side.client.leader == "a"
    assert side.client.leader_term == 1
    assert {side.route("put") for _ in range(9)} == {"a"}
    assert {side.route("get") for _ in range(9)} == {"a", "b", "c"}
    stats = side.client.endpoint_stats()
    assert sum(s.successes for s in stats.values()) == 18
    assert set(stats) == set(side.client.load_balancer.snapshot(now=0.0))
    assert side.in_flight() == 0


def test_waiting_for_a_leader_ends(side: Side) -> None:
    side.open()
    side.store.leader = None
    assert side.wait_for_leader(0.01) is None


def test_what_was_not_executed_is_sent_again(side: Side) -> None:
    side.open()
    side.wait_for_leader()
    side.store.failures["a"] = [StoreError(FailureKind.DROPPED), StoreError(FailureKind.LEARNER)]
    assert side.route("put", timeout=5.0) in {"b", "c"}
    assert side.store.asked[:2] == ["a", "a"]
    assert side.in_flight() == 0


def test_the_stores_own_error_comes_through(side: Side) -> None:
    side.open()
    side.wait_for_leader()
    error = StoreError(FailureKind.INTERRUPTED)
    side.store.failures["a"] = [error]
    with pytest.raises(StoreError) as caught:
        side.route("put")
    assert caught.value is error
    assert side.store.asked == ["a"]
    assert side.in_flight() == 0


def test_a_hook_that_fails_keeps_no_pick(side: Side) -> None:
    side.open()
    side.store.failures = {member: [ValueError("not the store's")] for member in "abc"}
    with pytest.raises(AssertionError):
        side.route("get")
    assert side.in_flight() == 0


# -- authentication -------------------------------------------------------------------------


def test_a_new_token_is_asked_of_the_member_that_refused_the_old_one(side: Side) -> None:
    side.open(password=True)
    side.wait_for_leader()
    side.store.failures["a"] = [StoreError(FailureKind.UNAUTHENTICATED)]
    assert side.route("put") == "a"
    assert side.store.authenticated == ["a"]


def test_a_wrong_password_is_told(side: Side) -> None:
    side.open(password=True)
    side.wait_for_leader()
    side.store.knows_password = False
    side.store.failures["a"] = [StoreError(FailureKind.UNAUTHENTICATED)]
    with pytest.raises(PermissionError, match="wrong password"):
        side.route("put")
    assert side.in_flight() == 0


def test_a_client_that_cannot_authenticate_says_so(side: Side) -> None:
    side.open()
    side.wait_for_leader()
    side.store.failures["a"] = [StoreError(FailureKind.UNAUTHENTICATED)]
    with pytest.raises(NotImplementedError, match="Client cannot authenticate at a"):
        side.route("put")


# -- interruptions --------------------------------------------------------------------------


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_interruption_gives_the_pick_back(side: Side, interruption: type[BaseException]) -> None:
    side.open()
    side.wait_for_leader()
    side.store.failures["a"] = [interruption()]
    with pytest.raises(interruption):
        side.route("put")
    assert side.in_flight() == 0
    assert side.client.endpoint_stats()["a"].cancellations == 1
    assert side.store.asked == ["a"]


# -- polls ----------------------------------------------------------------------------------


def test_a_member_that_answers_no_polls_is_out_until_it_does(side: Side) -> None:
    side.open()
    side.wait_for_leader()
    side.store.frozen = {"b"}
    side.until(lambda: side.reachable() == ("a", "c"))
    assert {side.route("get") for _ in range(9)} == {"a", "c"}
    side.store.frozen = set()
    side.until(lambda: side.reachable() == ("a", "b", "c"))


def test_a_frozen_leader_loses_the_writes_until_there_is_another(side: Side) -> None:
    side.open()
    side.wait_for_leader()
    side.store.frozen = {"a"}
    side.until(lambda: side.client.leader is None)
    assert side.route("put") in {"b", "c"}
    side.store.leader, side.store.term = "c", 2
    side.until(lambda: side.client.leader == "c")


def test_a_new_term_in_an_answer_is_followed_at_once(side: Side) -> None:
    side.open(RARE)
    side.wait_for_leader()
    side.store.leader, side.store.term = "b", 2
    side.route("get")
    side.until(lambda: side.client.leader == "b")
    assert side.client.leader_term == 2


def test_however_often_it_is_asked_for_a_member_is_polled_once_at_a_time(side: Side) -> None:
    """The hook itself fails, and so puts the member out, if it is called while it runs."""
    side.open(RARE)
    side.wait_for_leader()
    began, before = time.monotonic(), side.store.polled.total()
    for _ in range(20):
        for _ in range(50):
            side.refresh()
        polled = side.store.polled.total()
        side.until(lambda polled=polled: side.store.polled.total() > polled)  # type: ignore[misc]
    rounds = (time.monotonic() - began) / 0.02 + 2
    assert side.store.polled.total() - before <= 3 * rounds
    assert side.reachable() == ("a", "b", "c")


def test_if_nobody_tells_who_leads_writes_rotate_and_one_line_says_so(
    side: Side, caplog: pytest.LogCaptureFixture
) -> None:
    side.open()
    side.store.refuses = True
    with caplog.at_level(logging.WARNING, logger="lb_strategies"):
        side.route("put")
        side.until(lambda: min(side.store.polled[m] for m in "abc") > 3)
    assert len(caplog.records) == 1
    assert "does not tell who leads" in caplog.text
    assert {side.route("put") for _ in range(9)} == {"a", "b", "c"}


def test_polls_follow_the_members(side: Side) -> None:
    side.open()
    side.store.members = ("a", "b")
    side.update_members()
    assert side.polls() == 0, "it has not begun"
    side.wait_for_leader()
    side.store.members = ("a", "d")
    side.update_members()
    side.until(lambda: side.polls() == 2 and side.store.polled["d"] > 0)
    polled = side.store.polled["b"]
    side.until(lambda: side.store.polled["a"] > side.store.polled["d"] > 3)
    assert side.store.polled["b"] <= polled + 1
    assert set(side.client.endpoint_stats()) == {"a", "d"}


@pytest.mark.parametrize("kind", [LeavingThreadClient, LeavingTaskClient])
def test_a_poll_may_find_out_that_its_own_member_has_left(kind: type) -> None:
    side = Threads() if kind is LeavingThreadClient else Tasks()
    side.open(QUICK)
    side.client = kind(side.store, QUICK)
    side.store.members = ("a", "b")
    try:
        side.route("get")
        side.until(lambda: side.polls() == 2)
        assert set(side.client.endpoint_stats()) == {"a", "b"}
    finally:
        end(side)


# -- ends -----------------------------------------------------------------------------------


def test_closing_ends_the_polls_and_a_later_request_begins_anew(side: Side) -> None:
    side.open()
    side.close()
    side.wait_for_leader()
    assert side.polls() == 3
    side.close()
    assert side.polls() == 0
    side.close()
    side.route("get")
    assert side.polls() == 3


def test_a_client_that_is_dropped_is_freed_and_its_polls_end(side: Side) -> None:
    side.open(RARE)
    side.wait_for_leader()
    client = weakref.ref(side.client)
    side.refresh()
    refresh = side.client._router._refresh
    side.drop()
    side.until(lambda: client() is None)
    refresh()
    side.until(lambda: side.polls() == 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_polls_for_itself(side: Side) -> None:
    side.open(QUICK)
    side.wait_for_leader()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # there are threads: just that
        child = os.fork()
    if not child:  # pragma: no cover  # not measured there
        code = 1
        try:
            side.start_in_child()
            side.store.leader, side.store.term = "c", 5
            side.route("get")
            side.until(lambda: side.client.leader == "c")
            code = 0 if side.polls() == 3 else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert side.client.leader == "a"
    assert side.polls() == 3
