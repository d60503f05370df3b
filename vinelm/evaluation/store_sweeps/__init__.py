"""Sweeps over an objective's limits, tested on a store's results; also other prices, spending by stage, and errors of
the check.
"""
