"""Contents of checkpoints that are kept outside the store."""
