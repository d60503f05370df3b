"""How well a fitted model predicts rows that it has not seen, and what the choice of the best plan costs."""
