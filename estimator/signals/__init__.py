"""Estimates from signals such as agreeing answers: the probability that each answer is right."""
