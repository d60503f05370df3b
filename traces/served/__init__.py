"""Stores the results of served requests without delaying the requests."""
