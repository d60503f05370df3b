"""Serves requests that cost money: the threads that run them, their budget accounts, and the record of results."""
