from .document import Report as Report
from .drawing.html import render as render
from .drawing.html import write_page as write_page
from .formatting import percent as percent
from .formatting import seconds as seconds
from .formatting import usd as usd
from .store.page import report as report
