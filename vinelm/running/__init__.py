"""Requests served for money: the threads that run them, what each pays with, and the record of what they left."""
