"""The plans that are compared: one for each policy and budget, over paths or over signals."""
