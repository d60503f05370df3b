"""Applications that do not know VineLM, as strangers would bring them: each folder has one, rebuilt from a public structure.

What is not the application's own (its questions, its models of today by stage) is in ``cases.py``.
"""
