"""Figures of profiling on several machines, each measured by a module of its own."""
