"""Holding requests back while the session moves."""

import asyncio
import threading
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

from lb_strategies_zookeeper._gate import Gate


def is_awaited(gate: Gate) -> bool:
    return gate.is_awaited


def test_requests_are_held_back_in_their_order() -> None:
    sent: list[Any] = []
    gate = Gate(lambda request, result: sent.append(request), lambda: True)
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
    gate = Gate(lambda request, result: sent.append(request), lambda: True)
    gate.close()
    gate("a", None)
    gate.close()
    gate.open()
    gate.open()
    assert sent == ["a"]


def test_what_kazoo_says_at_once_is_passed_on() -> None:
    assert Gate(lambda request, result: False, lambda: True)("a", None) is False


def test_a_request_made_while_the_others_are_let_through_is_not_lost() -> None:
    sent: list[Any] = []

    def call(request: Any, result: Any) -> None:
        sent.append(request)
        if request == "a":
            gate("b", None)  # from a callback

    gate = Gate(call, lambda: True)
    gate.close()
    gate("a", None)
    gate.open()
    assert sorted(sent) == ["a", "b"]


def test_a_thread_that_has_not_waited_for_its_answer() -> None:
    gate = Gate(lambda request, result: None, lambda: True)
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
    gate = Gate(lambda request, result: None, lambda: True)
    result = SequentialThreadingHandler().async_result()

    async def ask() -> bool:
        gate("a", result)
        return gate.is_awaited

    assert await asyncio.create_task(ask())
    assert not gate.is_awaited


async def test_what_a_task_has_abandoned_is_everybodys_concern() -> None:
    gate = Gate(lambda request, result: None, lambda: True)
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


class Server:
    """Takes requests, and answers when it is told to, at a time that it is told."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sent: list[str] = []
        self.waiting = 0
        self.gate = Gate(self._take, lambda: not self.waiting, lambda: self.now, lambda f: f())

    def _take(self, request: Any, result: Any) -> None:
        self.sent.append(request)
        self.waiting += 1

    def answer(self) -> None:
        self.gate.answered()  # while kazoo's queues are as they were
        self.waiting -= 1

    def teach(self, seconds: float) -> None:
        for _ in range(3):
            self.gate("before", None)
            self.now += seconds
            self.answer()
        self.sent.clear()


def test_what_comes_after_a_server_seems_to_hang_is_not_sent_to_it() -> None:
    server = Server()
    server.teach(0.001)
    server.gate("a", None)
    server.now += 0.1
    server.gate("b", None)
    server.now += 0.1
    server.gate("c", None)
    server.gate("d", None)
    assert server.sent == ["a", "b"]
    server.waiting = 0
    server.gate.connected()  # elsewhere
    server.gate("e", None)
    assert server.sent == ["a", "b", "c", "d", "e"]


def test_a_server_that_answers_after_all_gets_the_rest() -> None:
    server = Server()
    server.teach(0.001)
    server.gate("a", None)
    server.now += 0.5
    server.gate("b", None)
    assert server.sent == ["a"]
    server.answer()
    assert server.sent == ["a", "b"]


def test_a_slow_server_does_not_seem_to_hang() -> None:
    server = Server()
    server.teach(0.1)
    server.gate("a", None)
    server.now += 0.2
    server.gate("b", None)
    assert server.sent == ["a", "b"]


def test_a_pause_between_requests_is_no_sign() -> None:
    server = Server()
    server.teach(0.001)
    server.now += 100.0
    server.gate("a", None)
    server.now += 0.1
    server.gate("b", None)
    assert server.sent == ["a", "b"]


def test_a_closed_gate_stays_closed_when_the_server_answers() -> None:
    server = Server()
    server.teach(0.001)
    server.gate("a", None)
    server.now += 0.5
    server.gate("b", None)
    server.gate.close()
    server.answer()
    assert server.sent == ["a"]
    server.gate.open()
    assert server.sent == ["a", "b"]


def test_a_server_that_has_answered_nothing_yet_is_given_more_time() -> None:
    server = Server()
    server.gate("a", None)
    server.now += 0.9
    server.gate("b", None)
    server.now += 0.2
    server.gate("c", None)
    assert server.sent == ["a", "b"]


def test_one_slow_answer_is_soon_forgotten() -> None:
    server = Server()
    server.teach(2.0)
    for _ in range(10):
        server.teach(0.001)
    server.gate("a", None)
    server.now += 0.4
    server.gate("b", None)
    assert server.sent == ["a"]


def test_the_connections_thread_never_waits_for_the_gate() -> None:
    """It is the one that whoever has the lock may be waiting for."""
    entered, leave = threading.Event(), threading.Event()

    def call(request: Any, result: Any) -> None:
        entered.set()
        assert leave.wait(10.0)

    gate = Gate(call, lambda: False)
    thread = threading.Thread(target=gate, args=("a", None))
    thread.start()
    assert entered.wait(10.0)
    gate.answered()
    gate.connected()
    leave.set()
    thread.join()


def test_what_was_held_back_goes_out_if_nothing_is_on_its_way() -> None:
    server = Server()
    server.teach(0.001)
    server.gate("a", None)
    server.now += 0.5
    server.gate("b", None)
    server.waiting = 0  # gone without an answer
    server.gate("c", None)
    assert server.sent == ["a", "b", "c"]
