"""The payments of a thread's requests, kept next to the thread's checkpoints."""
