import dataclasses

import pytest

from bench.contenders import IDEAL, Mode, named
from bench.scenario import Settings, Steps
from bench.scenarios import redis_degraded, redis_loading

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("mode", ["sync", "asyncio"])
def test_a_slow_replica_keeps_its_share_with_the_stock_client(mode: Mode) -> None:
    settings = Settings(mode=mode, seconds=1.0, rounds=1, arrivals=300)
    with Steps() as steps:
        outcome = redis_degraded.run(settings, steps, [*named("round_robin"), IDEAL])
    stock, ideal = outcome.contenders
    assert stock["errors"] == ideal["errors"] == 0
    assert stock["operations"] == ideal["operations"] > 100
    assert stock["degraded_share"] == pytest.approx(0.25, abs=0.05)
    assert ideal["degraded_share"] == 0.0
    assert stock["read"]["p90_ms"] > 6
    assert ideal["read"]["p50_ms"] < 6
    assert outcome.bars == []


def test_loading_and_masterdown_reach_the_user_of_the_stock_client() -> None:
    with Steps() as steps:
        outcome = redis_loading.run(
            dataclasses.replace(Settings(), seconds=5.0),
            steps,
            [*named("round_robin_replicas"), IDEAL],
        )
    stock_loading, ideal_loading, stock_down, ideal_down = outcome.contenders
    assert set(stock_loading["errors_by_type"]) == {"BusyLoadingError"}
    assert set(stock_down["errors_by_type"]) == {"MasterDownError"}
    assert ideal_loading["errors"] == ideal_down["errors"] == 0
