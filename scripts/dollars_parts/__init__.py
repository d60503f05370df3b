"""What `bench_profile_dollars.py` is made of: a provider with the real rules of prompt caches, and what is profiled on it."""
