from .declaration import Agree as Agree
from .declaration import Label as Label
from .declaration import Outcome as Outcome
from .declaration import Signal as Signal
from .declaration import Signals as Signals
from .outcomes import Outcomes as Outcomes
from .shown_answer import ShownAnswer as ShownAnswer
