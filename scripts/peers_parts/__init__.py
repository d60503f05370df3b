"""The parts of ``scripts/bench_peers.py``: the applications, the server, the questions, and an adapter for each peer."""
