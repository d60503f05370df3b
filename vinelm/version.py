"""The version of the package, in a separate file that every package may read."""

__version__ = "0.1.0"
