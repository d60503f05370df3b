"""Records what the requests of a thread have paid, stored with the thread's checkpoints."""
