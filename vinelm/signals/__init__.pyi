from .declaration import Agree as Agree
from .declaration import Label as Label
from .declaration import Outcome as Outcome
from .declaration import ShownAnswer as ShownAnswer
from .declaration import Signal as Signal
from .declaration import Signals as Signals
