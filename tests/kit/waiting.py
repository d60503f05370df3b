"""Waits for what other threads and processes do."""

import time


def wait_for(holds, seconds=60.0):
    """Return once ``holds()`` is true; the limit only ends a test that hangs."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.005)
