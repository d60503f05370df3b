"""The payments of a thread's requests, stored with the thread's checkpoints."""
