"""The compared plans: for each policy and each budget, over tries of every form."""
