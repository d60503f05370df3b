"""VineLM's command line interface."""
