from .autopilot import Autopilot as Autopilot
from .raising import Raising as Raising
from .state import StepState as StepState
