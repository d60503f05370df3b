"""Tests of a fleet need a Redis."""

from kit.servers.redis_server import redis_url

__all__ = ["redis_url"]
