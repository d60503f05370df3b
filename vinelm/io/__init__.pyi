from .terminal import visible as visible
