"""Sizes of requests: how dear a request is beside the mean one, and how that follows from its outcomes."""
