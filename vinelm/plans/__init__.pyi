from .decision_graph import DecisionGraph as DecisionGraph
from .static_plans import StaticPlans as StaticPlans
