"""Runs a policy over the whole fleet, and distributes its orders to the processes."""
