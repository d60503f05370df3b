from itertools import product

import pytest

from vinelm.backends import PRESETS
from vinelm.backends.offline.presets import BEHAVIOURS, simulated_catalog, simulated_tables
from vinelm.backends.offline.simulated import SimulatedBackend
from vinelm.catalog import Catalog
from vinelm.errors import ConfigError
from vinelm.workflows.nl2sql.simulated_writer import SqlWriter


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_load_the_same_from_tables(preset):
    assert Catalog.from_dict(simulated_tables(preset)).to_dict() == simulated_catalog(preset).to_dict()


@pytest.mark.parametrize("preset", PRESETS)
def test_every_model_is_called_simulated(preset):
    for model in simulated_catalog(preset).models:
        assert model.name.startswith("sim-")
        assert model.price.source.startswith("simulated, shaped like")
        assert model.engine == model.name


def test_paper_has_the_papers_eight():
    shapes = {BEHAVIOURS[name].shaped_like for name in PRESETS["paper"]}
    assert shapes == {
        "Gemma-3-27B",
        "Sonnet-4.6",
        "Kimi-K2.5",
        "Qwen3-32B",
        "GLM-4.7",
        "Llama-3.3-70B",
        "DeepSeek-V3.2",
        "gpt-oss-120b",
    }
    assert len(simulated_catalog("paper-2")) == 2


def test_unknown_preset_names_the_known():
    with pytest.raises(ConfigError, match=r"'paper'\?\): simulated presets are paper, paper-2, paper-4, paper-math, one-wins"):
        simulated_catalog("papers")


@pytest.mark.long
def test_in_one_wins_no_mixture_beats_the_best_single_model(databases, judge, requests, make_call):
    """Oracle stop, depth 2, every path: nothing is both as accurate and as cheap as the all-rounder asked again and again."""
    catalog = simulated_catalog("one-wins")
    backend = SimulatedBackend(SqlWriter(databases), seed=0, catalog=catalog)

    def path(prefix):
        right, cost_usd, latency_s = 0, 0.0, 0.0
        for request in requests:
            for k in range(1, len(prefix) + 1):
                call, _ = make_call(request, *prefix[:k])
                text, usage = backend.answer(catalog[prefix[k - 1]], call, 2000)
                cost_usd, latency_s = cost_usd + usage.cost_usd, latency_s + usage.latency_s
                if judge.is_right(request, text):
                    right += 1
                    break
        return right / len(requests), cost_usd, latency_s

    measured = {prefix: path(prefix) for k in (1, 2) for prefix in product(catalog, repeat=k)}
    best = measured["sim-all-rounder", "sim-all-rounder"]
    for prefix, (accuracy, cost_usd, latency_s) in measured.items():
        if set(prefix) != {"sim-all-rounder"}:
            assert accuracy < best[0] + 0.01, prefix
            assert cost_usd > measured["sim-all-rounder",][1], prefix
            assert latency_s > measured["sim-all-rounder",][2], prefix
