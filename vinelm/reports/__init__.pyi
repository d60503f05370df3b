from .drawing.html import render as render
from .drawing.html import write_page as write_page
from .formatting import percent as percent
from .formatting import seconds as seconds
from .formatting import usd as usd
from .page.document import Report as Report
from .store.reporting import report as report
