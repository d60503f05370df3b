"""Recorded sessions of tools: in a store, and in logs of messages."""
