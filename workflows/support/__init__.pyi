from .workflow import support as support
