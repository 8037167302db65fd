"""All scenarios, one file each; the file's docstring states the question and what is expected."""

from __future__ import annotations

from types import ModuleType

from bench.scenario import Scenario
from bench.scenarios import (
    etcd_degraded,
    etcd_election,
    etcd_overhead,
    etcd_paused,
    etcd_read_sizes,
    etcd_steady,
    etcd_sweep,
    redis_degraded,
    redis_frozen,
    redis_healthy,
    redis_loading,
    redis_mixed,
    redis_soak,
    zookeeper_degraded,
    zookeeper_paused,
    zookeeper_steady,
)


def _scenario(module: ModuleType) -> Scenario:
    name = module.__name__.rpartition(".")[2].replace("_", "-")
    question = (module.__doc__ or "").strip().splitlines()[0]
    return Scenario(
        name,
        module.run,
        question,
        runs_both=getattr(module, "RUNS_BOTH", False),
        mode=getattr(module, "MODE", "sync"),
        modes=getattr(module, "MODES", ("sync", "asyncio")),
    )


SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in map(
        _scenario,
        [
            *(redis_healthy, redis_degraded, redis_mixed, redis_frozen, redis_loading, redis_soak),
            *(etcd_steady, etcd_degraded, etcd_paused, etcd_election, etcd_read_sizes, etcd_sweep),
            etcd_overhead,
            *(zookeeper_steady, zookeeper_degraded, zookeeper_paused),
        ],
    )
}
