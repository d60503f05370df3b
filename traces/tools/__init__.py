"""Recorded sessions of tool calls: in a store, and in logs of messages."""
