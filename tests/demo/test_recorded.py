"""The demo on recorded answers: served exactly, judged by plans of the other half, whatever the seed."""

import csv
import gzip
import math

import numpy as np
import pytest

from vinelm.demo.recorded import against_today, run_recorded
from vinelm.demo.recorded_result import ServedPolicy, mean_over_groups
from vinelm.workflows.recorded import classeval


def run(name, folder, seed):
    return run_recorded(name, folder, seed=seed, advance=lambda *_: None)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return run("code", tmp_path_factory.mktemp("code"), 3)


def test_a_model_alone_is_served_exactly_what_the_table_has(found):
    with gzip.open(classeval.TABLE, "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    for one in found.models:
        recorded, per_in, per_out = classeval.PRICES[one.name]
        own = [row for row in rows if row["model"] == recorded]
        usd = [(classeval.PROMPT_TOKENS * per_in + math.ceil(int(row["chars"]) / 4) * per_out) / 1e6 for row in own]
        assert one.accuracy == pytest.approx(np.mean([row["all"] == "1" for row in own]))
        assert one.usd == pytest.approx(np.mean(usd))


def test_every_request_is_judged_once_and_all_policies_by_the_same(found):
    assert {len(one.right) for one in found.policies} == {len(found.groups)} == {376}
    assert len(set(found.groups)) == 96  # classes


def saves(found):
    return found.found.saved > 0.8 and found.found.gain.value > 0.0 and found.found.word in ("SWITCH", "UNDECIDED")


def test_another_seed_saves_as_well(found):
    assert saves(found)


@pytest.mark.long
def test_the_result_does_not_hang_on_the_seed(tmp_path):
    runs = [run("code", tmp_path / str(seed), seed) for seed in range(10)]
    assert all(map(saves, runs))
    assert all(run("code", tmp_path / "again", 4).found == runs[4].found for _ in range(1))


def policy(right, usd):
    return ServedPolicy(
        name="p", role="model", right=np.array(right, float), cost_usd=np.full(len(right), usd), latency_s=np.zeros(len(right))
    )


@pytest.mark.parametrize(
    ("right", "usd", "word"),
    [
        ([1.0] * 190 + [0.0] * 10, 0.1, "SWITCH"),  # as often right, a tenth of the dollars
        ([1.0] * 150 + [0.0] * 50, 0.1, "KEEP"),  # surely less often right
        ([0.0, 1.0] * 8 + [1.0] * 182 + [0.0] * 2, 0.1, "UNDECIDED"),
        ([1.0] * 190 + [0.0] * 10, 2.0, "KEEP"),  # as often right for more
        ([1.0] * 190 + [0.0] * 10, 1.0, "KEEP"),  # what runs today
    ],
)
def test_the_word_follows_the_paired_interval(right, usd, word):
    today = policy([1.0] * 190 + [0.0] * 10, 1.0)
    assert against_today(policy(right, usd), today, [str(i) for i in range(200)]).word == word


def test_requests_of_one_group_count_as_what_they_are():
    values = np.repeat([1.0, 0.0, 1.0, 0.0, 1.0, 0.0], 10)
    alone = mean_over_groups(values, [str(i) for i in range(60)])
    together = mean_over_groups(values, np.repeat(list("abcdef"), 10).tolist())
    assert alone.value == together.value == 0.5
    assert (together.high - 0.5) / (alone.high - 0.5) == pytest.approx(math.sqrt(6 / 5 * 10 / (60 / 59)))
