"""The command line interface of VineLM."""
