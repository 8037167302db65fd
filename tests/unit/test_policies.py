"""Which rule is behind which name."""

import pytest

from lb_strategies import BalancerOptions, LoadBalancingStrategy, Policy
from lb_strategies.policies import Boltzmann, PowerOfTwoChoices, Rotation, Uniform, make_policy

KINDS = {
    LoadBalancingStrategy.ROUND_ROBIN: Rotation,
    LoadBalancingStrategy.ROUND_ROBIN_REPLICAS: Rotation,
    LoadBalancingStrategy.RANDOM: Uniform,
    LoadBalancingStrategy.RANDOM_REPLICA: Uniform,
    LoadBalancingStrategy.LATENCY_BASED: PowerOfTwoChoices,
    LoadBalancingStrategy.LATENCY_BASED_REPLICAS: PowerOfTwoChoices,
    LoadBalancingStrategy.HYBRID: Rotation,
    LoadBalancingStrategy.BOLTZMANN: Boltzmann,
}


@pytest.mark.parametrize("strategy", list(LoadBalancingStrategy))
def test_every_strategy_has_its_policy(strategy: LoadBalancingStrategy) -> None:
    policy = make_policy(strategy, BalancerOptions())
    assert type(policy) is KINDS[strategy]
    assert isinstance(policy, Policy)


def test_only_the_stock_rotation_ignores_health() -> None:
    hybrid = make_policy(LoadBalancingStrategy.HYBRID, BalancerOptions())
    stock = make_policy(LoadBalancingStrategy.ROUND_ROBIN, BalancerOptions())
    assert isinstance(hybrid, Rotation)
    assert isinstance(stock, Rotation)
    assert (hybrid.ignores_health, stock.ignores_health) == (False, True)
