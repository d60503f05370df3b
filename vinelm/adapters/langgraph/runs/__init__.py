"""Runs of graphs: which run an invocation belongs to, its policy, its clock and its account."""
