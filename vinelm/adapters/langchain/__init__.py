"""The LangChain adapters: a chat model for code that only holds one, a middleware for ``create_agent``."""
