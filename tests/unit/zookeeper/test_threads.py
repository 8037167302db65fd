"""Threads that are there only as long as they are needed."""

import logging
import threading
from time import perf_counter

import pytest
from kazoo.protocol.states import KazooState

from lb_strategies_zookeeper._listeners import Listener, Notifier
from lb_strategies_zookeeper._ticker import Ticker


def test_a_function_is_called_when_it_is_due() -> None:
    ticker = Ticker()
    called = threading.Event()
    ticker.call_at(perf_counter(), called.set)
    assert called.wait(10.0)
    ticker.stop()


def test_a_forgotten_function_is_not_called() -> None:
    ticker = Ticker()
    called: list[str] = []
    done = threading.Event()

    def forgotten() -> None:
        called.append("forgotten")

    ticker.call_at(perf_counter() + 3600.0, forgotten)
    ticker.forget(forgotten)
    ticker.call_at(perf_counter(), done.set)
    assert done.wait(10.0)
    ticker.stop()
    assert called == []


def test_stopping_calls_what_is_left_and_ends_the_thread() -> None:
    ticker = Ticker()
    called = threading.Event()
    ticker.call_at(perf_counter() + 3600.0, called.set)
    ticker.stop()
    assert called.is_set()
    assert not [t for t in threading.enumerate() if t.name == "lb-ticker"]
    ticker.stop()


def test_what_comes_after_stopping_is_called_at_once_and_starts_no_thread() -> None:
    """A request that was about to wait while its client was stopped left one for ever."""
    ticker = Ticker()
    ticker.stop()
    called: list[str] = []
    ticker.call_at(perf_counter() + 3600.0, lambda: called.append("at once"))
    assert called == ["at once"]
    assert not [t for t in threading.enumerate() if t.name == "lb-ticker"]
    ticker.start()
    done = threading.Event()
    ticker.call_at(perf_counter(), done.set)
    assert done.wait(10.0)
    ticker.stop()


def test_listeners_are_called_in_order_outside_of_the_calling_thread() -> None:
    told: list[tuple[str, int | None]] = []
    done = threading.Event()

    def listen(state: KazooState) -> None:
        told.append((state, threading.get_ident()))
        if state == KazooState.LOST:
            done.set()

    listener = Listener(listen, Notifier(), lambda _: None)
    for state in (KazooState.CONNECTED, KazooState.SUSPENDED, KazooState.LOST):
        listener(state)
    assert done.wait(10.0)
    assert [state for state, _ in told] == ["CONNECTED", "SUSPENDED", "LOST"]
    assert threading.get_ident() not in [thread for _, thread in told]


def test_a_listener_that_returns_true_is_removed() -> None:
    removed: list[Listener] = []
    notifier = Notifier()
    done = threading.Event()
    listener = Listener(lambda state: True, notifier, removed.append)
    listener(KazooState.LOST)
    notifier.call(done.set)
    assert done.wait(10.0)
    assert removed == [listener]


def test_a_listener_that_fails_keeps_no_other_one_from_being_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    notifier = Notifier()
    done = threading.Event()

    def fail(state: KazooState) -> None:
        raise RuntimeError("of the user's")

    with caplog.at_level(logging.ERROR, "lb_strategies"):
        Listener(fail, notifier, lambda _: None)(KazooState.LOST)
        notifier.call(done.set)
        assert done.wait(10.0)
    assert "of the user's" in caplog.text


def test_listeners_of_one_function_are_equal() -> None:
    def listen(state: KazooState) -> None: ...

    notifier = Notifier()
    one, two = (Listener(listen, notifier, lambda _: None) for _ in range(2))
    assert one == two
    assert hash(one) == hash(two)
    assert one != Listener(print, notifier, lambda _: None)
    assert one != listen
