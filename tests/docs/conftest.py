"""A page about fleets needs a PostgreSQL."""

from kit.servers.postgres_server import postgres_server

__all__ = ["postgres_server"]
