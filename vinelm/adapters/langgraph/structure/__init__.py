"""Finds the stages of a compiled graph and their order, and writes a template with this order, as an object or as code."""
