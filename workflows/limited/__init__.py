"""Processes that carry out what a model's answer asks for, under kernel limits of time, memory and files."""
