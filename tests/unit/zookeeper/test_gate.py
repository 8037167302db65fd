"""Holding requests back while the session moves."""

import asyncio
import threading
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

from lb_strategies_zookeeper._moves import Gate


def is_awaited(gate: Gate) -> bool:
    return gate.is_awaited


def test_requests_are_held_back_in_their_order() -> None:
    sent: list[Any] = []
    gate = Gate(lambda request, result: sent.append(request))
    gate("a", None)
    gate.close()
    gate("b", None)
    gate("c", None)
    assert sent == ["a"]
    gate.open()
    gate("d", None)
    assert sent == ["a", "b", "c", "d"]


def test_closing_twice_loses_nothing() -> None:
    sent: list[Any] = []
    gate = Gate(lambda request, result: sent.append(request))
    gate.close()
    gate("a", None)
    gate.close()
    gate.open()
    gate.open()
    assert sent == ["a"]


def test_what_kazoo_says_at_once_is_passed_on() -> None:
    assert Gate(lambda request, result: False)("a", None) is False


def test_a_request_made_while_the_others_are_let_through_is_not_lost() -> None:
    sent: list[Any] = []

    def call(request: Any, result: Any) -> None:
        sent.append(request)
        if request == "a":
            gate("b", None)  # from a callback

    gate = Gate(call)
    gate.close()
    gate("a", None)
    gate.open()
    assert sorted(sent) == ["a", "b"]


def test_a_thread_that_has_not_waited_for_its_answer() -> None:
    gate = Gate(lambda request, result: None)
    assert not is_awaited(gate)
    result = SequentialThreadingHandler().async_result()
    gate("a", result)
    assert is_awaited(gate)
    others: list[bool] = []
    thread = threading.Thread(target=lambda: others.append(is_awaited(gate)))
    thread.start()
    thread.join()
    assert others == [False]
    result.set(1)
    assert not is_awaited(gate)
    gate("b", SequentialThreadingHandler().async_result())
    assert not is_awaited(gate)  # nobody holds it any more, kazoo neither


async def test_a_task_that_has_not_waited_is_not_the_others_concern() -> None:
    gate = Gate(lambda request, result: None)
    result = SequentialThreadingHandler().async_result()

    async def ask() -> bool:
        gate("a", result)
        return gate.is_awaited

    assert await asyncio.create_task(ask())
    assert not gate.is_awaited


async def test_what_a_task_has_abandoned_is_everybodys_concern() -> None:
    gate = Gate(lambda request, result: None)
    first, second = (SequentialThreadingHandler().async_result() for _ in range(2))
    gate.abandon(first)
    gate.abandon(second)
    assert is_awaited(gate)
    second.set(1)
    assert is_awaited(gate)
    first.set_exception(ValueError())
    assert not is_awaited(gate)
    gate.abandon(first)
    assert not is_awaited(gate)
