"""Tool prefetching: declared tools run in parallel to a model's call, and the application's call gets their result."""
