from .decision_graph import END as END
from .decision_graph import NOTHING as NOTHING
from .decision_graph import DecisionGraph as DecisionGraph
from .decision_graph import Span as Span
from .static_plans import StaticPlans as StaticPlans
