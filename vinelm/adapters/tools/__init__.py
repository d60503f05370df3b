"""Tool prefetching: a declared tool runs while a model is called, and the application's later call of it gets the result."""
