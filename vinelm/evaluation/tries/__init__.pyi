from .difference import MovedNode as MovedNode
from .difference import PlanFlip as PlanFlip
from .difference import TrieDifference as TrieDifference
from .difference import compare_tries as compare_tries
