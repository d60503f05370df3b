"""Processes that carry out what a model's answer requests, under kernel limits of time, memory and files."""
