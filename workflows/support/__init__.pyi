from .tickets import load_bundled as load_bundled
from .tickets import tickets as tickets
from .workflow import support as support
