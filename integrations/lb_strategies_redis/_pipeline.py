"""A pipeline in flight: the part that sync and asyncio share."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from lb_strategies import Outcome, Pick

from ._attempt import told
from ._errors import is_node_failure, outcome_of, stand_in

if TYPE_CHECKING:
    from ._lag import LoopLag
    from ._router import Router, Shard


class PipelineCall:
    """A pipeline on its way through the client: each shard's reads go to one node.

    Args:
        router: of the client.
    """

    def __init__(self, router: Router) -> None:
        self.router = router
        self.tried: set[str] = set()
        self.lost: dict[frozenset[str], Exception] = {}
        """What was wrong with the last node of those shards whose every node has failed."""
        self.is_grouping = False
        """Whether commands are being sorted by node, not yet sent."""
        self.connected_at = 0.0
        self.ended_at = 0.0
        self.lag: LoopLag | None = None
        self._chosen: dict[Shard, str] = {}
        self._picks: dict[str, Pick] = {}

    @property
    def node(self) -> None:
        """The node that it is on: never only one."""

    def restart(self) -> None:
        """Start an attempt to run the whole pipeline."""
        if not self.has_alternative():
            self.tried.clear()  # everybody has failed: once more from the beginning
        self.release()
        self.lost.clear()
        self.is_grouping = True

    def choose(self, shard: Shard) -> Any:
        """Return the node that serves the reads of `shard` in this attempt."""
        name = self._chosen.get(shard)
        if name is None:
            pick = shard.acquire("pipeline", self.tried)
            name = self._chosen[shard] = str(pick.endpoint)
            if self._picks.setdefault(name, pick) is not pick:
                pick.done(Outcome.REDIRECT, now=perf_counter())  # the topology was reloaded
        return shard.by_name[name]

    def take(self, name: str) -> Pick:
        """Return the pick for the part of the pipeline that goes to node `name`."""
        pick = self._picks.pop(name, None)
        if pick is not None:
            return pick
        return self.router.balancer.begin(name, now=perf_counter(), operation="pipeline")

    def finish(
        self,
        pick: Pick,
        error: BaseException | None,
        *,
        started_at: float,
        is_timed: bool,
        lag: LoopLag | None = None,
    ) -> None:
        """Give back the pick of one node's part.

        Args:
            pick: what was in flight.
            error: the one that says most about the node, None if there was none.
            started_at: when the commands were sent, in seconds.
            is_timed: whether the duration is known and that of reads only.
            lag: of the event loop, if there is one.
        """
        now = perf_counter()
        outcome = Outcome.SUCCESS if error is None else outcome_of(error)
        if outcome is Outcome.FAILURE or outcome is Outcome.TIMEOUT:
            self.tried.add(str(pick.endpoint))
        outcome = told(outcome, is_timed=is_timed, lag=lag, started_at=started_at, now=now)
        pick.done(outcome, now=now, started_at=max(started_at, self.connected_at))

    def refuse(self, shard: Shard) -> None:
        """Raise at once if every node of `shard` has already failed a command of this attempt."""
        lost = self.lost.get(shard.everyone)
        if lost is not None:
            raise stand_in("ResponseError", self.router.library, lost)

    def give_up(self, shard: Shard, error: BaseException) -> BaseException:
        """Return what redis-py should make of an error after which no node of `shard` is left.

        It would run each of the commands again as often as if it were the only one, and after
        that the whole: a pipeline of ten reads could wait for hours for a dead shard.
        """
        if not (isinstance(error, Exception) and is_node_failure(error)):
            return error
        self.lost[shard.everyone] = error
        return stand_in("ResponseError", self.router.library, error)

    def has_alternative(self) -> bool:
        """Whether the reads that failed can go to a node that has not."""
        return any(not shard.everyone.issubset(self.tried) for shard in self._chosen)

    def connected(self) -> None:
        """Note that a connection had to be made."""
        self.connected_at = perf_counter()

    def replied(self, error: Exception) -> Exception:
        """Return what redis-py should make of an error reply: the parts see to that."""
        return error

    def astray(self, error: Exception) -> Exception:
        """Redirects of a pipeline are run again one by one, those of a transaction moved."""
        return error

    def hop(self, name: str, router: Router) -> None:
        """Redirects of a pipeline are run again one by one, as attempts of their own."""

    def end(self, error: BaseException | None) -> None:
        """Note how the whole of it ended; its parts have given their picks back already."""

    def release(self) -> None:
        """Give back what was reserved and not used."""
        for pick in self._picks.values():
            pick.done(Outcome.REDIRECT, now=perf_counter())
        self._picks.clear()
        self._chosen.clear()
