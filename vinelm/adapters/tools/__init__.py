"""Tool prefetching: a declared tool runs while a model is called, and gives its result to the application's later call."""
