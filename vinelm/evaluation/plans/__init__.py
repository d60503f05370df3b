"""The plans that are compared: of each policy, for each budget, over tries of every kind."""
