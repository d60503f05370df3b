"""Blind questions to people: which of two answers is better. In a terminal, on a page of this machine, or in one file."""
