"""Spends money, sparsely: sampling, budget, workers, checkpoints."""
