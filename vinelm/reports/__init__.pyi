from .document import Report as Report
from .formatting import percent as percent
from .formatting import seconds as seconds
from .formatting import usd as usd
from .pictures.html import render as render
from .pictures.html import write_page as write_page
from .store.page import report as report
