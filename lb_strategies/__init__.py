"""Latency-aware, leader-aware load balancing for the clients people already use.

Everything public is here; deep imports are never needed.
"""

from .balancer import LoadBalancer
from .consensus import (
    AsyncConsensusRoutingMixin,
    ConsensusOptions,
    ConsensusRoutingMixin,
    FailureKind,
    MemberStatus,
    Operation,
    OperationClass,
    StatusRefusedError,
)
from .consistency import ReadConsistency
from .endpoint import EndpointStats
from .endpoint_policy import EndpointPolicy
from .errors import LoadBalancerError, NoEndpointError, StaleReplyError
from .options import BalancerOptions
from .pick import Outcome, Pick
from .policy import Candidate, Policy
from .strategy import LoadBalancingStrategy

__all__ = [
    "AsyncConsensusRoutingMixin",
    "BalancerOptions",
    "Candidate",
    "ConsensusOptions",
    "ConsensusRoutingMixin",
    "EndpointPolicy",
    "EndpointStats",
    "FailureKind",
    "LoadBalancer",
    "LoadBalancerError",
    "LoadBalancingStrategy",
    "MemberStatus",
    "NoEndpointError",
    "Operation",
    "OperationClass",
    "Outcome",
    "Pick",
    "Policy",
    "ReadConsistency",
    "StaleReplyError",
    "StatusRefusedError",
]

__version__ = "0.1.0"
