"""The connectivity of many channels as that of one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import grpc

Callback = Callable[[grpc.ChannelConnectivity], None]

_BEST_FIRST: Final = (
    grpc.ChannelConnectivity.READY,
    grpc.ChannelConnectivity.CONNECTING,
    grpc.ChannelConnectivity.IDLE,
    grpc.ChannelConnectivity.TRANSIENT_FAILURE,
    grpc.ChannelConnectivity.SHUTDOWN,
)


def best(states: list[grpc.ChannelConnectivity]) -> grpc.ChannelConnectivity:
    """Return the state of the whole: ready as soon as one member is."""
    return min(states, key=_BEST_FIRST.index)


class Connectivity:
    """The subscriptions to one routing channel."""

    def __init__(self) -> None:
        self._subscriptions: dict[Callback, _Subscription] = {}

    def subscribe(
        self, callback: Callback, channels: list[grpc.Channel], try_to_connect: bool
    ) -> None:
        """Tell `callback` of the best state, now and whenever it changes."""
        if callback not in self._subscriptions:
            self._subscriptions[callback] = _Subscription(callback, channels, try_to_connect)

    def unsubscribe(self, callback: Callback) -> None:
        """Tell `callback` no more; nothing happens if it never was."""
        subscription = self._subscriptions.pop(callback, None)
        if subscription is not None:
            subscription.end()


class _Subscription:
    def __init__(
        self, callback: Callback, channels: list[grpc.Channel], try_to_connect: bool
    ) -> None:
        self._callback = callback
        self._lock = threading.Lock()
        self._states = [grpc.ChannelConnectivity.IDLE] * len(channels)
        self._told: grpc.ChannelConnectivity | None = None
        self._ends: list[Callable[[], None]] = []
        for index, channel in enumerate(channels):
            self._add(index, channel, try_to_connect)

    def _add(self, index: int, channel: grpc.Channel, try_to_connect: bool) -> None:
        def changed(state: grpc.ChannelConnectivity) -> None:
            self._changed(index, state)

        self._ends.append(lambda: channel.unsubscribe(changed))
        channel.subscribe(changed, try_to_connect)

    def _changed(self, index: int, state: grpc.ChannelConnectivity) -> None:
        with self._lock:
            self._states[index] = state
            whole = best(self._states)
            if whole is self._told:
                return
            self._told = whole
        self._callback(whole)

    def end(self) -> None:
        for end in self._ends:
            end()
