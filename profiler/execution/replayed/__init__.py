"""Units that cannot resume from a checkpoint: the request runs from its start, with recorded answers for earlier calls."""
