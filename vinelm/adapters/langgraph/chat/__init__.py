"""Stages that are chat models instead of wrapped nodes: their calls, their path, and the nodes that hold them."""
