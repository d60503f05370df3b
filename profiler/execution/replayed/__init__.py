"""Units that cannot resume from a checkpoint: the request runs from its start, and earlier calls return recorded answers."""
