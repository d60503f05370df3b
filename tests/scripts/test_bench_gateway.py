"""The bench of the gateway measures what it says: all servers answer the same calls, and figures are differences to `bare`."""

from types import SimpleNamespace

import bench_gateway
import pytest


@pytest.mark.long  # nine seconds of a processor for its servers
def test_every_server_is_measured_beside_the_bare_one():
    options = SimpleNamespace(calls=10, at_once=4, litellm="", say=lambda line: None)
    found = bench_gateway.measure(options)
    for form in ("whole", "stream"):
        assert list(found[form]) == ["bare", "gateway", "keys"]
        assert found[form]["bare"]["added_cpu_ms"] == found[form]["bare"]["added_p99_ms"] == 0.0
        for one in found[form].values():
            assert one["p99_ms"] >= one["p50_ms"] > 0.0
    assert len(list(bench_gateway.lines(found))) == 8
