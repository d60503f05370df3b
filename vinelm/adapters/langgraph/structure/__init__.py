"""Finds the stages of a compiled graph and their order, and writes the template that expresses the order, also as code."""
