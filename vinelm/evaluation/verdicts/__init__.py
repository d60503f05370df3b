"""Verdicts: VineLM compared with its rivals by paired bootstrap, and halves of the requests that judge each other's plans."""
