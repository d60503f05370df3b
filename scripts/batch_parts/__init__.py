"""Parts of ``bench_batch.py``."""
