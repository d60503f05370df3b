"""Stores in PostgreSQL, and what several runs on one store agree on."""
