"""Natural language to SQL: generate, execute, repair."""
