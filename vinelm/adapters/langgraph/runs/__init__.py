"""Runs of graphs: finds an invocation's run, with its policy, clock and account."""
