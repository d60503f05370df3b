"""Tests a store's results under other limits and prices, and computes spending by stage and errors of the check."""
