"""Tests of a fleet need a Redis."""

from kit.servers.redis_server import fleet_name, redis_server, redis_url

__all__ = ["fleet_name", "redis_server", "redis_url"]
