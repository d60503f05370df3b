"""Requests served for money: the threads that run them, their budget accounts, and the record of their results."""
