"""Keeps what was bought: the observation store, import and export."""
