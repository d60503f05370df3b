"""What the requests of a thread have paid, kept beside the thread's checkpoints."""
