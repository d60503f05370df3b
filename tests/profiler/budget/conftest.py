"""The PostgreSQL servers of the tests of runs that share a store."""

from postgres_servers import postgres_server, postgres_server_url, postgres_url

__all__ = ["postgres_server", "postgres_server_url", "postgres_url"]
