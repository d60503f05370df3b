from .build import problems as problems
from .problem import MathProblem as MathProblem
