"""Tool prefetching: tools are declared, run in parallel to a model's call, and joined when called."""
