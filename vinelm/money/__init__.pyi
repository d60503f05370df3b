from .guard_pair import GuardPair as GuardPair
from .guard_pair import aauthorized as aauthorized
from .spend_guard import SpendGuard as SpendGuard
from .spend_guard import SpendPermit as SpendPermit
