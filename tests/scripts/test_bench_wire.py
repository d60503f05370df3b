"""The benchmark of provider code: what it serves is what the providers read, and its figures are those of the calls."""

import json
import sys

import bench_wire
import pytest


@pytest.mark.long
def test_the_ways_take_turns_and_are_timed():
    asked = []
    figures = bench_wire.timed({way: lambda way=way: asked.append(way) for way in ("a", "b", "c")}, calls=4)
    assert asked[:9] == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
    assert len(asked) == 3 * (bench_wire.WARM + 4)
    assert all(0 <= it["median_us"] <= it["p99_us"] for it in figures.values())


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # clients of event loops that have ended
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_every_provider_reads_what_the_server_writes(provider, monkeypatch, tmp_path):
    for name, value in bench_wire.KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(bench_wire, "WARM", 1)
    file = tmp_path / "wire.json"
    words = ["bench_wire.py", "--provider", provider, "--calls", "2", "--at-once", "3", "--results", str(file)]
    monkeypatch.setattr(sys, "argv", words)
    bench_wire.main()
    found = json.loads(file.read_text())["per_call"][provider]
    assert set(found) == {"whole", "streamed", "async", "3 at once"}
    assert all(set(by_way) == {"sdk", "langchain", "vinelm"} for by_way in found.values())
    assert [it["failed"] for it in found["3 at once"].values()] == [0, 0, 0]
