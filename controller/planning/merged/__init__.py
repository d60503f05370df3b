"""Plans over tries whose histories are merged: backward induction on conditional values, evaluation for the plan's own requests."""
