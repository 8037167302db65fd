"""What is told apart."""

from __future__ import annotations

import pytest

from lb_strategies import FailureKind, OperationClass


@pytest.mark.parametrize(
    ("kind", "is_read", "needs_leader", "needs_voter"),
    [
        (OperationClass.WRITE, False, True, True),
        (OperationClass.LINEARIZABLE_READ, True, False, True),
        (OperationClass.STALE_READ, True, False, False),
        (OperationClass.LEADER_STREAM, False, True, True),
        (OperationClass.STICKY_STREAM, False, False, True),
        (OperationClass.MEMBER, False, False, False),
    ],
)
def test_what_a_class_of_operations_needs(
    kind: OperationClass, is_read: bool, needs_leader: bool, needs_voter: bool
) -> None:
    assert kind.is_read is is_read
    assert kind.needs_leader is needs_leader
    assert kind.needs_voter is needs_voter


def test_what_was_refused_before_the_proposal_or_never_sent_was_not_executed() -> None:
    assert {kind for kind in FailureKind if not kind.may_have_executed} == {
        FailureKind.UNREACHABLE,
        FailureKind.NO_LEADER,
        FailureKind.DROPPED,
        FailureKind.LEARNER,
        FailureKind.UNAUTHENTICATED,
        FailureKind.BEHIND,
        FailureKind.OVERLOADED,
    }
