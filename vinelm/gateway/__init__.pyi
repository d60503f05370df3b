from .app import Gateway as Gateway
from .http_limits import HttpLimits as HttpLimits
from .http_limits import bounded_protocol as bounded_protocol
from .keys import KeyBook as KeyBook
