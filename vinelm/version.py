"""The version of the package: in its own file, so that every room may read it."""

__version__ = "0.1.0"
