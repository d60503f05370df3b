"""The comparison of allocators, on a small random table."""

import sys
from pathlib import Path

import pytest
from random_outcomes import random_outcomes

SCRIPTS = str(Path(__file__).parents[2] / "scripts")


@pytest.fixture(scope="module")
def bench():
    before = set(sys.modules)
    sys.path.insert(0, SCRIPTS)
    try:
        import bench_allocator

        yield bench_allocator
    finally:
        sys.path.remove(SCRIPTS)
        for name in set(sys.modules) - before:
            if name.split(".")[0] in {"bench_allocator", "bench_estimator", "signals_parts"}:
                del sys.modules[name]


def test_samplers_are_compared_on_the_same_splits(bench):
    table = random_outcomes(80, 3, seed=1)
    by_sampler = {name: [bench.measure(table, name, 2, seed, 0.3) for seed in range(2)] for name in ("cascade", "neyman")}
    found = bench.summary(by_sampler)
    gaps = found["neyman"]["less_cascade"]
    assert set(found["cascade"]) == {"rows", *bench.FIGURES, "spent_over_promised"}
    for name in bench.FIGURES:
        assert gaps[name]["value"] == pytest.approx(found["neyman"][name] - found["cascade"][name])
        assert gaps[name]["low"] <= gaps[name]["value"] <= gaps[name]["high"]
    over_all = bench.pooled({"one": found, "two": found})["neyman"]["less_cascade"]["mae"]
    assert over_all["value"] == pytest.approx(gaps["mae"]["value"])
    assert over_all["high"] - over_all["value"] == pytest.approx((gaps["mae"]["high"] - gaps["mae"]["value"]) / 2**0.5)
    text = bench.text_of("small", found)
    assert "neyman less cascade" in text
    assert len(text.splitlines()) == 5


def test_a_sampler_that_nobody_knows_is_refused(bench, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["bench_allocator.py", "--data", str(tmp_path), "--samplers", "magic"])
    assert bench.main() == 2
    assert "use priced, cascade, exhaustive, neyman" in capsys.readouterr().err
