"""The databases of a store (SQLite and PostgreSQL) and its tables."""
