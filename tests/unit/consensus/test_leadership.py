"""Who leads and who can be asked, from what the members say."""

from __future__ import annotations

import pytest

from lb_strategies import MemberStatus
from lb_strategies.consensus import LeadershipTracker
from lb_strategies.consensus.leadership import UNKNOWN_TERM
from lb_strategies.forks import after_fork_in_child

from .scripted import ABC, led, missed


def make_tracker(*, leader: str | None = None, term: int = 1) -> LeadershipTracker:
    tracker = LeadershipTracker(ABC)
    if leader is not None:
        led(tracker, leader, term=term)
    return tracker


def seen(tracker: LeadershipTracker) -> LeadershipTracker:
    """Return `tracker`: of an attribute mypy would believe that it stays as it was."""
    return tracker


def says(
    term: int, leader: str | None, *, learner: bool = False, has_leader: bool | None = None
) -> MemberStatus:
    return MemberStatus(term=term, leader=leader, learner=learner, has_leader=has_leader)


# -- who leads ------------------------------------------------------------------------------


def test_nobody_leads_before_anybody_said_so() -> None:
    tracker = make_tracker()
    assert seen(tracker).leader is None
    assert seen(tracker).term == UNKNOWN_TERM
    assert seen(tracker).voters == seen(tracker).followers == seen(tracker).reachable == ABC


def test_one_members_word_is_enough() -> None:
    tracker = make_tracker()
    tracker.status("b", says(3, "a"))
    assert seen(tracker).leader is None, "a has not said yet which identity it has"
    tracker.status("a", says(3, "a"))
    assert (seen(tracker).leader, seen(tracker).term) == ("a", 3)
    assert seen(tracker).followers == ("b", "c")


def test_identities_may_differ_from_endpoints() -> None:
    tracker = make_tracker()
    tracker.status("b", MemberStatus(term=3, leader=0xA, identity=0xB))
    tracker.status("a", MemberStatus(term=3, leader=0xA, identity=0xA))
    assert seen(tracker).leader == "a"


def test_a_member_that_was_replaced_does_not_keep_its_old_identity() -> None:
    tracker = make_tracker()
    tracker.status("a", MemberStatus(term=3, leader=0xA, identity=0xA))
    tracker.status("a", MemberStatus(term=3, leader=0xA, identity=0xA2))
    assert seen(tracker).leader is None


def test_a_view_of_an_older_term_is_ignored() -> None:
    tracker = make_tracker(leader="a", term=5)
    tracker.status("b", says(4, "b"))
    assert (seen(tracker).leader, seen(tracker).term) == ("a", 5)


@pytest.mark.parametrize("has_leader", [None, True, False])
def test_a_member_that_names_no_leader_does_not_unseat_another(has_leader: bool | None) -> None:
    tracker = make_tracker(leader="a", term=5)
    tracker.status("b", says(5, None, has_leader=has_leader))
    assert seen(tracker).leader == "a"
    # Some stores' followers do not tell whom they follow, and serve all the same.
    assert seen(tracker).followers == (("b", "c") if has_leader else ("c",))


def test_at_a_new_term_nobody_leads_until_named() -> None:
    tracker = make_tracker(leader="a", term=5)
    tracker.status("b", says(6, None))
    assert (seen(tracker).leader, seen(tracker).term) == (None, 6)
    assert seen(tracker).followers == ("a", "c"), "b cannot serve now"
    tracker.status("a", says(5, "a"))
    assert seen(tracker).leader is None
    tracker.status("c", says(6, "b"))
    assert seen(tracker).leader == "b"


def test_a_higher_term_in_an_answer_asks_for_a_poll_once() -> None:
    tracker = make_tracker(leader="a", term=5)
    assert not tracker.reply(5)
    assert not tracker.reply(4)
    assert tracker.reply(6)
    assert seen(tracker).leader is None
    assert not tracker.reply(6)


def test_a_hint_is_believed_only_while_nothing_better_is_known() -> None:
    tracker = make_tracker(leader="a", term=5)
    assert not tracker.reply(5, "b")
    assert seen(tracker).leader == "a"
    assert tracker.reply(6, "b")
    assert seen(tracker).leader == "b"
    assert not tracker.reply(5, "c")
    tracker.status("a", says(6, "c"))
    assert seen(tracker).leader == "c", "what a member says when asked is better than a hint"


def test_a_hint_of_an_old_term_is_ignored() -> None:
    tracker = make_tracker(leader="a", term=5)
    tracker.reply(6)
    assert not tracker.reply(5, "a")
    assert seen(tracker).leader is None
    assert not tracker.reply(6, "b")
    assert seen(tracker).leader == "b"


# -- doubts ---------------------------------------------------------------------------------


def test_a_leader_that_failed_has_to_speak_for_itself() -> None:
    tracker = make_tracker(leader="a", term=5)
    tracker.failure("b")
    assert seen(tracker).leader == "a"
    tracker.failure("a")
    assert seen(tracker).leader is None
    assert seen(tracker).followers == ("b", "c"), "it may lead, for all we know"
    tracker.status("b", says(5, "a"))
    assert seen(tracker).leader is None
    assert not tracker.reply(5, "a")
    assert seen(tracker).leader is None
    tracker.status("a", says(5, "a"))
    assert seen(tracker).leader == "a"


def test_doubts_end_with_a_new_leader_or_term() -> None:
    tracker = make_tracker(leader="a", term=5)
    tracker.failure("a")
    tracker.status("b", says(6, "a"))
    assert seen(tracker).leader == "a"
    tracker.failure("a")
    tracker.status("b", says(6, "c"))
    assert seen(tracker).leader == "c"


def test_a_leader_that_says_there_is_none_does_not_lead() -> None:
    tracker = make_tracker(leader="a", term=5)
    tracker.status("a", says(5, None))
    assert seen(tracker).leader is None
    tracker.status("a", says(5, "a"))
    assert seen(tracker).leader == "a"


# -- who can be asked -----------------------------------------------------------------------


def test_two_missed_polls_put_a_member_out_until_it_answers() -> None:
    tracker = make_tracker(leader="a")
    assert not tracker.poll_missed("b")
    assert seen(tracker).reachable == ABC
    assert tracker.poll_missed("b")
    assert not tracker.poll_missed("b"), "that is said once"
    assert seen(tracker).reachable == seen(tracker).voters == ("a", "c")
    assert seen(tracker).all_voters == ABC
    tracker.status("b", says(1, "a"))
    assert seen(tracker).reachable == seen(tracker).voters == ABC


def test_if_nobody_answers_all_are_tried_but_that_is_known() -> None:
    tracker = make_tracker(leader="a")
    for member in ABC * 2:
        tracker.poll_missed(member)
    assert (seen(tracker).answering, seen(tracker).reachable) == ((), ABC)
    tracker.answered("b")
    assert seen(tracker).answering == seen(tracker).reachable == ("b",)


def test_an_answer_between_two_misses_starts_the_count_anew() -> None:
    tracker = make_tracker(leader="a")
    tracker.poll_missed("b")
    tracker.answered("b")
    tracker.poll_missed("b")
    assert seen(tracker).reachable == ABC


def test_an_answer_that_tells_nothing_brings_a_member_back() -> None:
    tracker = make_tracker(leader="a")
    missed(tracker, "b")
    tracker.answered("b")
    assert seen(tracker).reachable == ABC
    tracker.found_leaderless("b")
    tracker.answered("b")
    assert seen(tracker).voters == ABC


def test_a_leader_that_is_out_gets_no_writes() -> None:
    tracker = make_tracker(leader="a")
    missed(tracker, "a")
    assert seen(tracker).leader is None
    assert seen(tracker).voters == seen(tracker).followers == ("b", "c")


def test_if_nobody_answers_everybody_is_asked() -> None:
    tracker = make_tracker(leader="a")
    missed(tracker, *ABC)
    assert seen(tracker).reachable == seen(tracker).voters == ABC
    assert seen(tracker).leader is None


def test_learners_do_not_vote() -> None:
    tracker = make_tracker(leader="a")
    tracker.status("b", says(1, "a", learner=True))
    assert seen(tracker).reachable == ABC
    assert seen(tracker).replicas == ("b", "c")
    assert seen(tracker).voters == seen(tracker).all_voters == ("a", "c")
    assert seen(tracker).followers == seen(tracker).all_followers == ("c",)
    tracker.status("b", says(1, "a"))
    assert seen(tracker).voters == ABC, "it was promoted"


def test_a_member_that_refused_as_a_learner_is_one() -> None:
    tracker = make_tracker(leader="a")
    tracker.found_learner("c")
    tracker.found_learner("stranger")
    assert seen(tracker).voters == ("a", "b")


def test_if_all_are_learners_somebody_is_asked_all_the_same() -> None:
    tracker = make_tracker()
    for member in ABC:
        tracker.found_learner(member)
    assert seen(tracker).voters == seen(tracker).all_voters == ABC


def test_a_member_without_a_leader_serves_only_stale_reads_if_others_have_one() -> None:
    tracker = make_tracker(leader="a")
    tracker.status("b", says(1, None))
    assert seen(tracker).voters == ("a", "c")
    assert seen(tracker).reachable == ABC
    tracker.found_leaderless("c")
    tracker.found_leaderless("stranger")
    assert seen(tracker).voters == ("a",)
    tracker.status("c", says(1, "a"))
    assert seen(tracker).voters == ("a", "c")


def test_in_an_election_everybody_is_asked() -> None:
    tracker = make_tracker(leader="a")
    for member in ABC:
        tracker.found_leaderless(member)
    assert seen(tracker).voters == ABC


# -- membership -----------------------------------------------------------------------------


def test_what_is_known_of_those_that_stay_is_kept() -> None:
    tracker = make_tracker(leader="a")
    missed(tracker, "b")
    tracker.update(["d", "a", "b"])
    assert seen(tracker).members == ("d", "a", "b")
    assert seen(tracker).leader == "a"
    assert seen(tracker).reachable == ("d", "a")


def test_what_leaves_is_forgotten() -> None:
    tracker = make_tracker(leader="a")
    missed(tracker, "b")
    tracker.found_learner("c")
    tracker.update(["d"])
    assert seen(tracker).leader is None
    for member in "abc":
        tracker.status(member, says(1, "a"))
        assert not tracker.poll_missed(member)
    assert seen(tracker).reachable == ("d",)
    tracker.update(ABC)
    assert seen(tracker).voters == ABC
    assert seen(tracker).leader is None, "it has not spoken since"


def test_a_tuple_that_did_not_change_is_the_same_object() -> None:
    """A balancer finds what it knows of a tuple by its identity."""
    tracker = make_tracker(leader="a")
    before = tracker.voters, tracker.followers, tracker.reachable
    led(tracker, "a", term=2)
    after = tracker.voters, tracker.followers, tracker.reachable
    assert all(one is other for one, other in zip(before, after, strict=True))


def test_at_least_one_poll_must_be_missed() -> None:
    with pytest.raises(ValueError, match="max_misses must be at least 1, got 0"):
        LeadershipTracker(ABC, max_misses=0)


def test_a_forked_child_does_not_wait_for_a_thread_of_its_parent() -> None:
    tracker = make_tracker(leader="a")
    tracker._lock.acquire()
    after_fork_in_child()
    tracker.status("b", says(2, "b"))
    assert seen(tracker).leader == "b"
