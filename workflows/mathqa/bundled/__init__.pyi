from .build import problems as problems
from .problem import Problem as Problem
