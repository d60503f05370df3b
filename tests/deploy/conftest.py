"""Tests of a fleet need a Redis."""

from redis_servers import fleet_name, redis_server, redis_url

__all__ = ["fleet_name", "redis_server", "redis_url"]
