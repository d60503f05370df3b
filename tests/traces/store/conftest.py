"""The PostgreSQL servers of the tests of stores."""

from kit.servers.postgres_server import postgres_server, postgres_server_url, postgres_url

__all__ = ["postgres_server", "postgres_server_url", "postgres_url"]
