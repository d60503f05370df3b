"""Processes that do what a model's answer asks for, under limits of time, memory and files that the kernel keeps."""
