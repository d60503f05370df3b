"""The graphs of the examples before VineLM: a test counts the lines that routing took."""
