"""Parts of `bench_fleet.py`: serving processes on simulated engines in virtual time, and the global loop on a real Redis."""
