"""The plans to compare: one for each policy and budget, over paths or over signals."""
