"""Watches over members that fail at any moment: what their caller sees is the store's log."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lb_strategies import FailureKind
from lb_strategies_etcd._resumption import Watches
from tests.unit.etcd.watch_messages import Messages, events_of

NEW = Messages()
OLD = Messages(are_old=True)
KEYS = [b"a", b"b", b"c", b"d"]
ACTIONS = ("write", "write", "create", "cancel", "progress", "serve", "serve", "deliver", "cut")

Event = tuple[int, bytes]


class Member:
    """The server's end of one stream, as etcd behaves: see `Watches` for the rules.

    It applies the log late, and sends it in batches of whole revisions, or in fragments.
    """

    def __init__(self, log: list[list[Event]], rng: random.Random) -> None:
        self._log = log
        self._rng = rng
        self._next_id = 0
        self._watches: dict[int, tuple[Any, int]] = {}
        """Each watch's request and the revision it is to get next, by id."""
        self.revision = rng.randrange(len(log) + 1)
        self.requests: deque[bytes] = deque()
        self.responses: deque[Any] = deque()

    def serve(self, *, wholly: bool = False) -> None:
        """Take what was sent, catch up a bit or wholly, and send some of that or all."""
        while self.requests:
            self._take(NEW.Request.FromString(self.requests.popleft()))
        least = len(self._log) if wholly else self.revision
        self.revision = self._rng.randint(least, len(self._log))
        for watch_id in self._rng.sample(sorted(self._watches), len(self._watches)):
            self._notify(watch_id, self.revision if wholly else 0)

    def _take(self, request: Any) -> None:
        kind = request.WhichOneof("request_union")
        if kind == "create_request":
            create = request.create_request
            watch_id = create.watch_id
            if not watch_id:
                while self._next_id in self._watches:
                    self._next_id += 1
                watch_id = self._next_id
                self._next_id += 1
            assert watch_id not in self._watches
            self._watches[watch_id] = create, create.start_revision or self.revision + 1
            self.responses.append(NEW.created(watch_id, self.revision))
        elif kind == "cancel_request":
            if self._watches.pop(request.cancel_request.watch_id, None):
                self.responses.append(
                    NEW.response(request.cancel_request.watch_id, self.revision, canceled=True)
                )
        else:
            self.responses.append(
                NEW.response(-1, self.revision)
            )  # ahead of events, as before 3.5.8

    def _notify(self, watch_id: int, least: int) -> None:
        create, following = self._watches[watch_id]
        last = max(following - 1, self._rng.randint(least, self.revision))
        events = [
            event
            for revision in self._log[following - 1 : last]
            for event in revision
            if event[1] >= create.key
        ]
        self._watches[watch_id] = create, last + 1
        if not events:
            if create.progress_notify and last == self.revision:
                self.responses.append(NEW.response(watch_id, self.revision))
            return
        while create.fragment and len(events) > 1 and self._rng.random() < 0.7:
            cut = self._rng.randrange(1, len(events))
            self.responses.append(
                NEW.response(watch_id, self.revision, *events[:cut], fragment=True)
            )
            events = events[cut:]
        self.responses.append(NEW.response(watch_id, self.revision, *events))


class Caller:
    """Who watches, and believes to have one stream.

    Args:
        made: the caller's messages.
        log: the store's.
    """

    def __init__(self, made: Messages, log: list[list[Event]], rng: random.Random) -> None:
        self._made = made
        self._log = log
        self._rng = rng
        self._watches = Watches()
        self._creating: deque[Any] = deque()
        self._running: dict[int, tuple[Any, int, list[Event]]] = {}
        """Requests, first revisions and what came, by id."""
        self._midway: dict[int, bool] = {}
        self._member = Member(log, rng)

    def write(self) -> None:
        revision = len(self._log) + 1
        keys = self._rng.sample(KEYS, self._rng.randint(1, len(KEYS)))
        self._log.append([(revision, key) for key in keys])

    def create(self) -> None:
        fields: dict[str, Any] = {"key": self._rng.choice(KEYS)}
        if self._rng.random() < 0.3:
            fields["start_revision"] = self._rng.randint(1, len(self._log) + 3)
        if self._rng.random() < 0.3:
            fields["progress_notify"] = True
        if self._made is NEW and self._rng.random() < 0.5:
            fields["fragment"] = True
        request = self._made.create(**fields)
        self._creating.append(request)
        self._send(request)

    def cancel(self) -> None:
        if self._running:
            self._send(self._made.cancel(self._rng.choice(sorted(self._running))))

    def progress(self) -> None:
        if self._made is NEW:
            self._send(self._made.progress())

    def serve(self) -> None:
        self._member.serve()

    def cut(self) -> None:
        """Lose the stream, and what is on its way in either direction."""
        first = self._watches.reopen(FailureKind.INTERRUPTED)
        assert first is not None
        self._member = Member(self._log, self._rng)
        self._member.requests.extend(request.SerializeToString() for request in first)  # type: ignore[attr-defined]

    def deliver(self) -> None:
        if not self._member.responses:
            return
        data = self._member.responses.popleft().SerializeToString()
        seen: Any = self._watches.received(self._made.Response.FromString(data))
        if seen is None:
            return
        watch_id = seen.watch_id
        if seen.created:
            request = self._creating.popleft().create_request
            assert watch_id not in self._running
            self._running[watch_id] = (
                request,
                request.start_revision or seen.header.revision + 1,
                [],
            )
            self._midway[watch_id] = False
        elif seen.canceled:
            self._check(watch_id, is_whole=False)
            del self._running[watch_id]
        elif watch_id != -1:
            events = events_of(seen)
            assert events or self._midway[watch_id] or self._running[watch_id][0].progress_notify
            self._running[watch_id][2].extend(events)
            self._midway[watch_id] = getattr(seen, "fragment", False)
            if events and not self._midway[watch_id]:
                last = events[-1][0]
                assert self._expected(watch_id, until=last) == self._running[watch_id][2]

    def finish(self) -> None:
        """Let everything arrive."""
        self._member.serve(wholly=True)
        while self._member.responses:
            self.deliver()
        for watch_id in self._running:
            self._check(watch_id, is_whole=True)

    def _check(self, watch_id: int, *, is_whole: bool) -> None:
        events = self._running[watch_id][2]
        expected = self._expected(watch_id)
        assert events == (expected if is_whole else expected[: len(events)])

    def _expected(self, watch_id: int, until: int | None = None) -> list[Event]:
        request, first, _ = self._running[watch_id]
        revisions = self._log[first - 1 : until]
        return [event for revision in revisions for event in revision if event[1] >= request.key]

    def _send(self, request: Any) -> None:
        self._watches.sent(request)
        self._member.requests.append(request.SerializeToString())


@pytest.mark.parametrize("made", [NEW, OLD], ids=["today's", "before 3.4"])
@given(seed=st.integers(0, 2**32))
@settings(deadline=None)
def test_the_caller_sees_every_revision_once_and_whole(made: Messages, seed: int) -> None:
    rng = random.Random(seed)  # drawn one by one, so many actions would be too few
    caller = Caller(made, [], rng)
    for action in rng.choices(ACTIONS, k=150):
        for _ in range(rng.randint(1, 20) if action == "deliver" else 1):
            getattr(caller, action)()
    caller.finish()
