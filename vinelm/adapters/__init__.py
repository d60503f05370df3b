"""Wrappers that let an application ask a policy for its models."""
