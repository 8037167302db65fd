"""What a derived class inherits, also from a base that somebody has patched."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from lb_strategies_redis._derive import adopt, inherited, release


class Parent:
    def greet(self, name: str) -> str:
        return f"{type(self).__name__} greets {name}"


class Client(Parent):
    pass


def derived(base: Any) -> Any:
    """Return a class that changes its own mind in the middle of a call."""

    class Derived(base):  # type: ignore[misc]  # a dynamic base
        def greet(self, name: str) -> str:
            release(self, derived)
            return str(inherited(base, self, "greet")(name)).upper()

    return Derived


def test_a_method_is_found_and_bound_while_the_class_is_swapped_back() -> None:
    client = Client()
    adopt(client, derived)
    assert client.greet("you") == "CLIENT GREETS YOU"
    assert client.greet("you") == "Client greets you"


def test_a_test_double_in_the_base_gets_no_self(monkeypatch: pytest.MonkeyPatch) -> None:
    """redis-py's own tests, and instrumentors, patch classes with mocks."""
    double = Mock(return_value="doubled")
    monkeypatch.setattr(Parent, "greet", double)
    client = Client()
    adopt(client, derived)
    assert client.greet("you") == "DOUBLED"
    double.assert_called_once_with("you")


def test_what_no_class_has_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Client has no attribute 'leave'"):
        inherited(Client, Client(), "leave")
