from .pipeline import DemoResult as DemoResult
from .pipeline import run_demo as run_demo
