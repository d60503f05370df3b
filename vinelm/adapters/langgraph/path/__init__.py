"""The path of a request: how it is stored with the application's checkpoints, and what its invocations have shown."""
