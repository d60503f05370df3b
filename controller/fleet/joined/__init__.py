"""This process as a part of a fleet: what it shares, and what each of its requests shows."""
