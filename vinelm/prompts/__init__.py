"""Hashes of prompts ("shapes"), which show what prompts share: used to measure common parts and to choose what a cache
should keep.
"""
