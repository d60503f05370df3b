"""The PostgreSQL servers of the tests of runs that share a store."""

from kit.servers.postgres_server import postgres_server, postgres_server_url, postgres_url

__all__ = ["postgres_server", "postgres_server_url", "postgres_url"]
