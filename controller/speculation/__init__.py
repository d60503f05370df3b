"""Which tools are called before they are asked for: a rule over probabilities, seconds and dollars, purely."""
