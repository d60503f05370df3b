"""Leases on limits that the processes of a fleet share: calls and tokens a minute, dollars a day."""
