"""What a stream sends and shows after its member has failed; the members are scripted."""

from __future__ import annotations

from typing import Any

import pytest

from lb_strategies import FailureKind, Operation, OperationClass
from lb_strategies_etcd._methods import classifier
from lb_strategies_etcd._resumption import (
    KeepAlives,
    OldTokenError,
    Replay,
    Watches,
    resumption_of,
)

from .watch_messages import Messages, events_of

NEW = Messages()
OLD = Messages(are_old=True)
CUT = FailureKind.INTERRUPTED
FINAL = (FailureKind.ANSWER, FailureKind.CANCELLED, FailureKind.TIMED_OUT)
NEVER_SENT = (FailureKind.UNREACHABLE, FailureKind.NO_LEADER, FailureKind.LEARNER)
VINTAGES = pytest.mark.parametrize("made", [NEW, OLD], ids=["today's", "before 3.4"])


def watching(made: Messages = NEW, *requests: Any, revision: int = 10) -> Watches:
    """Return watches 0, 1, ... that `requests` have created at `revision`."""
    watches = Watches()
    for watch_id, request in enumerate(requests):
        watches.sent(request)
        created = made.created(watch_id, revision)
        assert watches.received(created) is created
    return watches


def reopened(watches: Watches, kind: FailureKind = CUT) -> list[Any]:
    """Return what a server understands of the first requests on a new stream."""
    requests = watches.reopen(kind)
    assert requests is not None
    return [NEW.Request.FromString(request.SerializeToString()) for request in requests]  # type: ignore[attr-defined]


def start(watches: Watches, watch_id: int = 0) -> int:
    """Return where a watch would go on."""
    [found] = [r for r in reopened(watches) if r.create_request.watch_id == watch_id]
    return int(found.create_request.start_revision)


@pytest.mark.parametrize(
    ("method", "resume_watches", "expected"),
    [
        ("/etcdserverpb.Watch/Watch", True, Watches),
        ("/etcdserverpb.Watch/Watch", False, Replay),
        ("/v3electionpb.Election/Observe", True, Replay),
        ("/grpc.health.v1.Health/Watch", True, Replay),
        ("/etcdserverpb.Lease/LeaseKeepAlive", False, KeepAlives),
        ("/etcdserverpb.Maintenance/Snapshot", True, Replay),
    ],
)
def test_each_method_gets_what_fits_it(
    method: str, resume_watches: bool, expected: type[object]
) -> None:
    found = resumption_of(classifier(method)(None), resume_watches=resume_watches)
    assert type(found) is expected


# -- old tokens -----------------------------------------------------------------------------

DENIED = {
    "canceled": True,
    "cancel_reason": "rpc error: code = PermissionDenied desc = etcdserver: permission denied",
}


def test_a_creation_that_an_old_token_may_be_the_reason_for_is_sent_once_more() -> None:
    watches = Watches(has_user=True)
    watches.sent(NEW.create(b"first"))
    watches.received(NEW.created(0, 10))
    watches.sent(NEW.create(b"second"))
    with pytest.raises(OldTokenError, match="permission denied"):
        watches.received(NEW.created(-1, 10, **DENIED))
    keys = [one.create_request.key for one in reopened(watches, FailureKind.UNAUTHENTICATED)]
    assert keys == [b"first", b"second"]
    assert watches.received(NEW.created(0, 10)) is None
    again = NEW.created(-1, 10, **DENIED)
    assert watches.received(again) is again  # with a new token, it is for want of permission
    watches.sent(NEW.create(b"third"))
    with pytest.raises(OldTokenError):
        watches.received(NEW.created(-1, 10, **DENIED))


@pytest.mark.parametrize(
    ("has_user", "fields"),
    [
        (False, DENIED),
        (True, {"canceled": True, "compact_revision": 5}),
        (True, {"canceled": True, "cancel_reason": "etcdserver: duplicate watch ID"}),
    ],
)
def test_other_refusals_reach_the_caller(has_user: bool, fields: dict[str, Any]) -> None:
    watches = Watches(has_user=has_user)
    watches.sent(NEW.create())
    refused = NEW.created(-1, 10, **fields)
    assert watches.received(refused) is refused


def test_a_refusal_of_what_nobody_asked_for_reaches_the_caller() -> None:
    watches = Watches(has_user=True)
    refused = NEW.created(-1, 10, **DENIED)
    assert watches.received(refused) is refused


# -- streams of which nothing is known ------------------------------------------------------


@pytest.mark.parametrize("kind", FailureKind)
def test_an_unknown_stream_is_opened_again_only_if_nothing_was_sent(kind: FailureKind) -> None:
    replay = resumption_of(Operation(OperationClass.STICKY_STREAM, "Observe"), resume_watches=True)
    replay.sent("a")
    replay.sent("b")
    never_sent = kind in (*NEVER_SENT, FailureKind.UNAUTHENTICATED)
    assert replay.reopen(kind) == (["a", "b"] if never_sent else None)
    assert replay.received("response") == "response"
    replay.sent("c")
    assert replay.reopen(kind) is None


# -- keep-alives ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FailureKind)
def test_keep_alives_without_an_answer_are_sent_again(kind: FailureKind) -> None:
    keep_alives = KeepAlives()
    for request in "abc":
        keep_alives.sent(request)
    assert keep_alives.received("A") == "A"
    assert keep_alives.reopen(kind) == (None if kind in FINAL else ["b", "c"])


def test_an_answer_to_a_keep_alive_sent_twice_does_no_harm() -> None:
    keep_alives = KeepAlives()
    keep_alives.sent("a")
    assert [keep_alives.received("A"), keep_alives.received("A")] == ["A", "A"]
    assert keep_alives.reopen(CUT) == []


# -- watches --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FailureKind)
def test_watches_end_with_the_callers_time_and_the_stores_word(kind: FailureKind) -> None:
    watches = watching(NEW, NEW.create())
    assert (watches.reopen(kind) is None) == (kind in FINAL)


@VINTAGES
def test_a_watch_goes_on_under_its_id_after_what_came(made: Messages) -> None:
    watches = watching(made, made.create(b"a", range_end=b"c", prev_kv=True), made.create(b"x"))
    watches.received(made.response(1, 14, (12, b"x"), (14, b"x")))
    assert reopened(watches) == [
        NEW.create(b"a", range_end=b"c", prev_kv=True, start_revision=11),
        NEW.create(b"x", start_revision=15, watch_id=1),
    ]


@VINTAGES
def test_nothing_of_the_callers_is_changed(made: Messages) -> None:
    request = made.create(b"x")
    watches = watching(made, made.create(), request)
    reopened(watches)
    assert request == made.create(b"x")
    request.create_request.key = b"reused by the caller"
    assert reopened(watches)[1].create_request.key == b"x"


def test_a_watch_that_began_in_the_past_or_the_future_goes_on_there() -> None:
    watches = watching(NEW, NEW.create(start_revision=3), NEW.create(start_revision=99))
    assert (start(watches, 0), start(watches, 1)) == (3, 99)
    watches.received(NEW.response(0, 10, (4, b"k")))
    assert start(watches, 0) == 5


def test_it_goes_on_after_the_last_event_and_not_after_the_header() -> None:
    """A member that catches up sends the store's revision along with events long past."""
    watches = watching(NEW, NEW.create(start_revision=1))
    watches.received(NEW.response(0, 5000, (7, b"k")))
    assert start(watches) == 8


def test_watch_zero_comes_before_whatever_the_server_numbers() -> None:
    """On a new stream the server's lowest free id is 0, which no request can name."""
    watches = watching(NEW, NEW.create())
    watches.sent(NEW.create(b"late"))
    assert [request.create_request.key for request in reopened(watches)] == [b"k", b"late"]


def test_the_caller_hears_of_no_creation_twice() -> None:
    watches = watching(NEW, NEW.create(), NEW.create())
    watches.sent(NEW.create(b"late"))
    assert len(reopened(watches)) == 3
    assert watches.received(NEW.created(0, 20)) is None
    event = NEW.response(0, 21, (21, b"k"))
    assert watches.received(event) is event
    assert watches.received(NEW.created(1, 20)) is None
    late = NEW.created(2, 20)
    assert watches.received(late) is late
    assert [r.create_request.start_revision for r in reopened(watches)] == [22, 11, 21]


def test_a_second_failure_in_the_midst_of_the_first_loses_nothing() -> None:
    watches = watching(NEW, NEW.create(), NEW.create())
    assert len(reopened(watches)) == 2
    assert watches.received(NEW.created(0, 20)) is None
    assert len(reopened(watches)) == 2
    assert watches.received(NEW.created(0, 20)) is None
    assert watches.received(NEW.created(1, 20)) is None


def test_requests_without_an_answer_are_sent_again_in_order() -> None:
    watches = watching(NEW, NEW.create())
    asked = [NEW.create(b"a"), NEW.cancel(0), NEW.create(b"b", watch_id=9), NEW.cancel(9)]
    for request in asked:
        watches.sent(request)
    assert reopened(watches)[1:] == asked
    assert watches.received(NEW.created(0, 20)) is None
    assert watches.received(NEW.created(1, 20)) is not None
    assert watches.received(NEW.response(0, 20, canceled=True)) is not None
    assert reopened(watches) == [NEW.create(b"a", start_revision=21, watch_id=1), *asked[2:]]


def test_a_cancelled_watch_stays_cancelled() -> None:
    watches = watching(NEW, NEW.create(b"a"), NEW.create(b"b"))
    watches.sent(NEW.cancel(0))
    assert watches.received(NEW.response(0, 10, canceled=True)) is not None
    watches.sent(NEW.cancel(0))  # the server does not answer this
    assert reopened(watches) == [NEW.create(b"b", start_revision=11, watch_id=1)]


def test_compaction_is_told_in_the_servers_words() -> None:
    watches = watching(NEW, NEW.create())
    reopened(watches)
    assert watches.received(NEW.created(0, 90)) is None
    compacted = NEW.response(0, 90, canceled=True, compact_revision=50)
    assert watches.received(compacted) is compacted
    assert reopened(watches) == []


@pytest.mark.parametrize("answered_as", [-1, 4])
def test_a_watch_that_is_refused_elsewhere_is_cancelled_for_the_caller(answered_as: int) -> None:
    watches = watching(NEW, *[NEW.create()] * 5)
    reopened(watches)
    for watch_id in range(4):
        watches.received(NEW.created(watch_id, 20))
    refusal = NEW.created(answered_as, 20, canceled=True, cancel_reason="permission denied")
    expected = NEW.response(4, 20, canceled=True, cancel_reason="permission denied")
    assert watches.received(refusal) == expected
    assert len(reopened(watches)) == 4


def test_a_watch_that_is_refused_at_first_is_not_made_again() -> None:
    watches = Watches()
    watches.sent(NEW.create())
    refusal = NEW.created(-1, 20, canceled=True)
    assert watches.received(refusal) is refusal
    assert reopened(watches) == []


def test_a_server_that_gives_other_ids_is_not_believed() -> None:
    watches = watching(NEW, NEW.create(), NEW.create())
    reopened(watches)
    watches.received(NEW.created(0, 20))
    with pytest.raises(RuntimeError, match="watch 1 came back as 7"):
        watches.received(NEW.created(7, 20))


def test_notifications_of_progress_move_a_watch_on() -> None:
    watches = watching(NEW, NEW.create(progress_notify=True), NEW.create(start_revision=500))
    for watch_id in (0, 1):
        notification = NEW.response(watch_id, 80)
        assert watches.received(notification) is notification
    assert (start(watches, 0), start(watches, 1)) == (81, 500)


def test_progress_that_was_asked_for_moves_nothing_on() -> None:
    """Before 3.5.8 it may overtake events: etcd-io/etcd#15220."""
    watches = watching(NEW, NEW.create())
    for _ in range(3):
        watches.sent(NEW.progress())
    assert reopened(watches)[1:] == [NEW.progress()], "one answer is as good as three"
    assert watches.received(NEW.created(0, 70)) is None
    answer = NEW.response(-1, 80)
    assert watches.received(answer) is answer
    assert reopened(watches) == [NEW.create(start_revision=11)]


def test_a_revision_in_fragments_is_delivered_once() -> None:
    watches = watching(NEW, NEW.create(fragment=True))
    cut_off = [
        NEW.response(0, 12, (11, b"a"), (12, b"a"), fragment=True),
        NEW.response(0, 12, (12, b"b"), fragment=True),
    ]
    assert [watches.received(response) for response in cut_off] == cut_off
    assert start(watches) == 12, "its rest is not here yet"
    assert watches.received(NEW.created(0, 13)) is None
    assert watches.received(NEW.response(0, 13, (12, b"a"), fragment=True)) is None
    assert watches.received(NEW.response(0, 13, (12, b"b"), fragment=True)) is None
    rest: Any = watches.received(NEW.response(0, 13, (12, b"c"), (13, b"a")))
    assert (events_of(rest), rest.fragment) == ([(12, b"c"), (13, b"a")], False)
    assert start(watches) == 14


def test_fragments_are_ended_even_if_there_was_no_more_to_come() -> None:
    watches = watching(NEW, NEW.create(fragment=True))
    watches.received(NEW.response(0, 12, (12, b"a"), (12, b"b"), fragment=True))
    reopened(watches)
    assert watches.received(NEW.created(0, 12)) is None
    end: Any = watches.received(NEW.response(0, 12, (12, b"a"), (12, b"b")))
    assert (events_of(end), end.fragment) == ([], False)
    assert start(watches) == 13


def test_what_is_no_message_of_etcds_is_handled_as_unknown() -> None:
    watches = Watches()
    watches.sent(b"serialised by the caller")
    assert watches.reopen(CUT) is None
    assert watches.reopen(FailureKind.UNREACHABLE) == [b"serialised by the caller"]
    assert watches.received(b"response") == b"response"
    assert watches.reopen(FailureKind.UNREACHABLE) is None


def test_responses_that_belong_to_nothing_are_passed_on() -> None:
    watches = Watches()
    for response in (NEW.created(0, 10), NEW.response(7, 10, (10, b"k")), NEW.response(-1, 10)):
        assert watches.received(response) is response
    assert reopened(watches) == []


def test_ids_of_any_size_reach_the_server_through_old_messages() -> None:
    watches = Watches()
    watches.sent(OLD.create())
    watches.received(OLD.created(2**62 + 300, 10))
    assert reopened(watches)[0].create_request.watch_id == 2**62 + 300
