"""Exact counts of success and failure over the last seconds."""

from lb_strategies.window import SuccessWindow


class Counted:
    """A window, fed one request at a time as an endpoint feeds it."""

    def __init__(self, length: float) -> None:
        self.window = SuccessWindow(length)
        self.totals = [0, 0]

    def add(self, success: bool, now: float) -> None:
        if now >= self.window.next_at:
            self.window.mark(now, *self.totals)
        self.totals[success] += 1

    def counts(self, now: float) -> tuple[int, int]:
        return self.window.counts(now, *self.totals)


def test_a_window_counts_exactly_and_forgets_after_its_length() -> None:
    counted = Counted(30.0)
    for second in range(100):
        counted.add(second % 2 == 0, float(second))
    assert counted.counts(99.0) == (16, 15)  # seconds 69 to 99: a mark opens its second
    assert counted.counts(114.0) == (8, 8)
    assert counted.counts(200.0) == (0, 0)


def test_a_window_that_is_full_holds_no_more_than_its_length_and_a_mark() -> None:
    counted = Counted(30.0)
    for step in range(100_000):
        counted.add(True, step * 0.1)
    assert counted.counts(9999.9)[1] <= 310
    assert len(counted.window._marks) <= 32


def test_a_window_counts_what_is_late() -> None:
    counted = Counted(30.0)
    counted.add(True, 100.0)
    counted.add(False, 50.0)
    assert counted.counts(100.0) == (1, 1)


def test_a_window_without_a_mark_counts_from_the_start() -> None:
    window = SuccessWindow(30.0)
    assert window.counts(1000.0, 3, 4) == (3, 4)


def test_a_window_can_be_emptied() -> None:
    counted = Counted(30.0)
    counted.add(False, 1.0)
    counted.window.reset(*counted.totals)
    assert counted.counts(1.0) == (0, 0)
    counted.add(True, 1.0)
    assert counted.counts(1.0) == (0, 1)
