"""Estimates of correct answers from a judge's verdicts, given its agreement with labels."""
