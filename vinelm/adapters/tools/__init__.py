"""Tool prefetching: a declared tool runs while a model is called, and the application's later call of the tool gets the result.
"""
