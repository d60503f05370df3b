"""Leases on limits that the processes of a fleet share: calls and tokens per minute, dollars per day."""
