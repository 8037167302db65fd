"""What a session has seen."""

from kazoo.protocol.states import ZnodeStat
from kazoo.security import OPEN_ACL_UNSAFE

from lb_strategies_zookeeper._progress import Progress, position_of, stat_position

STAT = ZnodeStat(
    czxid=5,
    mzxid=7,
    ctime=0,
    mtime=0,
    version=1,
    cversion=1,
    aversion=0,
    ephemeralOwner=0,
    dataLength=0,
    numChildren=1,
    pzxid=9,
)


def is_unsettled(progress: Progress) -> bool:
    return progress.is_unsettled


def test_a_node_is_as_old_as_its_last_change() -> None:
    assert stat_position(STAT) == 9
    assert position_of((b"data", STAT), 20) == 9
    assert position_of((["child"], STAT), 20) == 9
    assert position_of(([], STAT), 20) == 9


def test_what_does_not_tell_when_it_changed_is_as_new_as_its_answer() -> None:
    assert position_of((OPEN_ACL_UNSAFE, STAT), 20) == 20
    assert position_of(STAT, 20) == 20  # set_acls answers a stat in which it does not show
    assert position_of(None, 20) == 20
    assert position_of("/created", 20) == 20
    assert position_of([True, STAT], 20) == 20


def test_progress_never_goes_back() -> None:
    progress = Progress()
    progress.saw(7)
    progress.saw(5)
    assert progress.zxid == 7
    progress.answered((b"data", STAT), 20)
    assert progress.zxid == 9


def test_after_a_watch_the_next_answer_tells_where_the_session_is() -> None:
    progress = Progress()
    progress.fired()
    assert is_unsettled(progress)
    progress.answered((b"data", STAT), 20)
    assert not is_unsettled(progress)
    assert progress.zxid == 20


def test_a_read_settles_only_what_fired_before_it_began() -> None:
    progress = Progress()
    progress.fired()
    events = progress.events
    progress.fired()
    progress.settle(20, events)
    assert is_unsettled(progress)
    progress.settle(21, 2)
    progress.settle(19, 1)
    assert not is_unsettled(progress)
    assert progress.zxid == 21
