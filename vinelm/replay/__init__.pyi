from .bill import Bill as Bill
from .bill import bill_of as bill_of
from .formats.call import LoggedCall as LoggedCall
from .formats.reading import read_calls as read_calls
from .recorder import VineRecorder as VineRecorder
