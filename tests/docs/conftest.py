"""A page about fleets needs a PostgreSQL."""

from postgres_servers import postgres_server

__all__ = ["postgres_server"]
