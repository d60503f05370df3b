"""The bench of questions to a graph: both agents' calls counted by hand on a small graph. It asserts no time."""

import gzip
import json

import pytest

pytest.importorskip("pydantic_monty", reason="the extra graph is not installed")

import bench_graphqa as bench

LOOPS = """symptom = RetrieveNode('pain')
count = {}
for disease in NeighbourCheck(symptom, 'presents'):
    for x in NeighbourCheck(disease, 'treats'):
        for y in NeighbourCheck(x, 'includes'):
            count[y] = count.get(y, 0) + 1
best = max(count.values())
print(', '.join(sorted(NodeFeature(y, 'name') for y in count if count[y] == best)))"""
COUNT = "disease = RetrieveNode('cold')\nprint(NodeDegree(disease, 'treats'))"
NODES = {
    "s": "Symptom pain",
    "d1": "Disease cold",
    "d2": "Disease flu",
    "c1": "Drug one",
    "c2": "Drug two",
    "k1": "Class a",
    "k2": "Class b",
}
EDGES = ["d1 presents s", "d2 presents s", "c1 treats d1", "c1 treats d2", "c2 treats d2", "k1 includes c1", "k2 includes c2"]
ROWS = [
    {
        "template": 17,
        "question": "Which class has the most for pain?",
        "answer": "a",
        "entities": {"a": "pain"},
        "program": LOOPS,
    },
    {"template": 16, "question": "How many treat cold?", "answer": "1", "entities": {"a": "cold"}, "program": COUNT},
]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graph")
    nodes = ["id\tkind\tname", *("\t".join((key, *text.split())) for key, text in NODES.items())]
    edges = ["source\ttype\ttarget", *(text.replace(" ", "\t") for text in EDGES)]
    rows = [json.dumps(row | {"question_id": str(number), "source": "generated"}) for number, row in enumerate(ROWS)]
    for name, lines in (("nodes.tsv", nodes), ("edges.tsv", edges), ("questions.jsonl", rows)):
        with gzip.open(folder / f"{name}.gz", "wt") as file:
            file.write("\n".join(lines) + "\n")
    return bench.measured(folder, None, examples=2000)


def test_both_forms_of_the_programs_give_the_labelled_answers(found):
    assert [(found[name]["equal"], found[name]["of"]) for name in ("programs", "programs_with_lists")] == [(2, 2), (2, 2)]
    assert "NeighbourCheck(NeighbourCheck(NeighbourCheck(symptom, 'presents'), 'treats'), 'includes')" in bench.with_lists(
        LOOPS
    )
    assert bench.with_lists(COUNT) == COUNT


def test_calls_are_counted(found):
    """Direct: classify and act. Open: classify, plan, act, reason. The rival has two calls a turn and one turn to finish."""
    direct, longer = found["generated direct"], found["generated multi_hop"]
    assert (direct["glm"]["calls"], longer["glm"]["calls"]) == (2, 4)
    assert (direct["rival"]["calls"], longer["rival"]["calls"]) == (2 * 3, 2 * 6)
    assert found["glm_right_by_gold_script"] == 2
    assert longer["share_of_rival"]["tokens"] < 0.06
    assert longer["rival"]["usd_1.0"] > longer["rival"]["usd_0.1"] > longer["glm"]["usd_0.1"] == longer["glm"]["usd_1.0"]


def test_what_a_cache_keeps_is_whole_blocks_of_a_long_prefix():
    calls = [("a", "x" * 4 * 1100, "y" * 8), ("b", "x" * 4 * 1100 + "z" * 400, "y" * 8)]
    total = bench.priced(calls)
    assert (total["calls"], total["tokens"], total["out"], total["cached"]) == (2, 1100 + 1200 + 4, 4, 1024)
    assert total["usd_1.0"] == pytest.approx((2300 * 2 + 4 * 8) / 1e6)
    assert total["usd_0.5"] == pytest.approx((2300 * 2 - 1024 + 4 * 8) / 1e6)
    assert bench.priced([("a", "x" * 400, ""), ("b", "x" * 400, "")])["cached"] == 0


def test_a_folder_without_data_is_one_line(tmp_path, capsys):
    assert bench.main(["--data", str(tmp_path)]) == 2
    assert "no questions.jsonl.gz" in capsys.readouterr().err
