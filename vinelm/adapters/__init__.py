"""Adapters that connect an application to a policy, which chooses the model for each call."""
