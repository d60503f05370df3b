"""Estimates of what requests show: answers that agree, signals, and the probability that each answer is right."""
