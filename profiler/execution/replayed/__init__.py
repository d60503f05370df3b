"""Replay, for workflows that cannot resume from a checkpoint: runs a request from its start, with recorded answers for earlier
calls.
"""
