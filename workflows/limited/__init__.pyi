from .session_process import GRACE_S as GRACE_S
from .session_process import deadline as deadline
from .session_process import serve_sessions as serve_sessions
from .sessions import Sessions as Sessions
from .sessions import is_supported as is_supported
