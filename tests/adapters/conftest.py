"""Tests of a fleet need a Redis."""

from redis_servers import redis_url

__all__ = ["redis_url"]
