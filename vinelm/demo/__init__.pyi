from .real import run_real as run_real
from .recorded import run_recorded as run_recorded
from .recorded_result import RecordedResult as RecordedResult
from .tour import TourResult as TourResult
from .tour import run_tour as run_tour
