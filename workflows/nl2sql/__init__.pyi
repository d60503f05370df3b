from .simulated_writer import SqlWriter as SqlWriter
from .workflow import load_bundled as load_bundled
from .workflow import nl2sql as nl2sql
from .workflow import nl2sql_2 as nl2sql_2
