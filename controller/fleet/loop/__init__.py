"""The loop that runs a policy over the whole fleet, and how its orders come to the processes."""
