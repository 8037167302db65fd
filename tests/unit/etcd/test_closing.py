"""A routing channel that is being closed."""

from __future__ import annotations

import threading

import pytest

from lb_strategies_etcd import RoutingChannel


def polls() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("lb-poll closed.test")]


def test_nothing_has_polls_begin_again_while_a_channel_is_closed() -> None:
    """The list of members is asked for in the background, perhaps just then."""
    channel = RoutingChannel(["closed.test:1", "closed.test:2"])
    channel._links.is_closed = True
    with pytest.raises(ValueError, match="closed channel"):
        channel._keep_polling()
    assert polls() == []


def test_a_channel_closed_just_when_polls_begin_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """What asked for them has looked already, and would leave them behind for ever."""
    channel = RoutingChannel(["closed.test:1", "closed.test:2"])

    def looked() -> None:
        monkeypatch.undo()
        channel.close()

    monkeypatch.setattr(channel._links, "check", looked)
    channel._keep_polling()
    assert polls() == []


def test_a_closed_channel_polls_nobody_and_sends_nothing() -> None:
    channel = RoutingChannel(["closed.test:1"])
    channel.close()
    with pytest.raises(ValueError, match="closed channel"):
        channel.unary_unary("/etcdserverpb.KV/Range")(b"")
    assert polls() == []
