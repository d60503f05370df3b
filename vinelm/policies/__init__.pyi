from .fixed import DefaultPolicy as DefaultPolicy
from .fixed import ForcedMode as ForcedMode
from .fixed import ForcedPolicy as ForcedPolicy
from .fixed import StaticPolicy as StaticPolicy
from .policy import Judge as Judge
from .policy import OnError as OnError
from .policy import Policy as Policy
from .policy import StopRulePolicy as StopRulePolicy
