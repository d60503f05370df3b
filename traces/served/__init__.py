"""Rows of served requests, written off the request path."""
