"""Asks people which of two answers is better, without naming models: in a terminal, on a local page, or in one file."""
