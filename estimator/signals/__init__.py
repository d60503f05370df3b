"""Estimates from signals: agreeing answers, and the probability that each answer is right."""
