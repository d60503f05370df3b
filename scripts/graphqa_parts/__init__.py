"""Parts of `bench_graphqa.py`: retrieval that starts early, routing on simulated catalogs, hostile snippets."""
