"""The PostgreSQL server of the tests of processes that share a store."""

from kit.servers.postgres_server import postgres_server, postgres_server_url, postgres_url

__all__ = ["postgres_server", "postgres_server_url", "postgres_url"]
