"""The version of VineLM, in a separate module that every part may import."""

__version__ = "0.1.0"
