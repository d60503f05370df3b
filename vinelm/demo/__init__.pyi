from .recorded import RecordedResult as RecordedResult
from .recorded import run_recorded as run_recorded
from .tour import TourResult as TourResult
from .tour import run_tour as run_tour
