"""What `bench_engines.py` says of what an engine has counted."""

import bench_engines as script
import pytest
from engine_parts.orders import LAYOUTS, Load
from engine_parts.servers import Setting


def test_a_cell_is_compared_with_the_best_of_the_others_and_with_arrival():
    found = {"arrival": (900, 100), "sorted file": (400, 600), "vinelm batch": (440, 560)}
    row = script.row_of("role first", script.LLAMA[0], {name: {"computed": n, "cached": c} for name, (n, c) in found.items()})
    assert (row["best"], row["ratio"], row["prompt"]) == ("sorted file", pytest.approx(1.1), 1000)
    assert row["to arrival"] == pytest.approx(440 / 900)
    assert "0.49 of arrival" in script.line_of(row)
    missed = row | {"ratio": 1.2, "computed": dict.fromkeys(script.ORDERS, 1)}
    assert [*script.lines({"cells": {"a": missed}})][-1] == "1 of 1 cells miss the bar."


def test_settings_are_told_in_words():
    assert [one.name for one in (*script.LLAMA, *script.VLLM)] == [
        "llama.cpp, 1 slot",
        "llama.cpp, 1 slot, 8 GiB of RAM cache",
        "llama.cpp, 4 slots",
        "llama.cpp, 4 slots, 8 GiB of RAM cache",
        "vLLM, 4 slots, 3,200 tokens",
        "vLLM, 4 slots, 16,384 tokens",
    ]
    assert Setting("llama.cpp", 2, 0).name == "llama.cpp, 2 slots"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_both_calls_of_a_question_have_its_table(layout):
    work = Load(layout, [])
    row = {"table": "a | b", "question": "how many?"}
    draft, check = work.draft(row), work.check(row, "seven")
    assert all("a | b" in "".join(text for _, text in prompt) for prompt in (draft, check))
    assert ("Proposed: seven" in check[-1][1], "Proposed" in draft[-1][1]) == (True, False)


def test_without_an_engine_it_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["bench_engines.py", "--data", str(tmp_path)])
    assert script.main() == 2
    assert "name the interpreter" in capsys.readouterr().err
