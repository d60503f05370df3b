"""Processes that do what a model's answer asks for, under limits of time, memory and files that the kernel keeps."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
