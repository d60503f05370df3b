"""Policies for the whole fleet: their orders, and those that are built in. Pure: no I/O, no clock."""
