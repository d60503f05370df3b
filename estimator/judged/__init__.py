"""Estimates the share of correct answers from a judge's verdicts and the judge's agreement with labels."""
