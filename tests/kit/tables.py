"""Random complete tables."""

import numpy as np
from science.recorded_table import RecordedTable

from kit.catalogs import make_catalog
from kit.templates import make_template
from vinelm.trie import Trie


def random_table(seed: int, *, n_requests: int, n_models: int, depth: int, stop: str = "workflow") -> RecordedTable:
    """A complete table without structure: outcomes, stops, costs and latencies drawn independently."""
    rng = np.random.default_rng(seed)
    template = make_template(n_models, depth, stop)
    trie = Trie.from_template(template)
    shape = (n_requests, len(trie))
    success = rng.random(shape) < 0.4
    success[:, 0] = False
    stopped = rng.random(shape) < 0.5
    stopped[:, 0] = False
    return RecordedTable(
        template=template,
        catalog=make_catalog(n_models),
        trie=trie,
        request_ids=tuple(f"q{i}" for i in range(n_requests)),
        success=success,
        stopped=stopped,
        cost_usd=rng.lognormal(-6, 1, shape),
        latency_s=rng.lognormal(0, 0.5, shape),
    )
