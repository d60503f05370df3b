"""`vinelm label`: in the terminal, as a file that comes back, and what it says where there is nothing to ask."""

import json
import shutil
import stat

import pytest
from kit.worlds.replays import LABELS

from vinelm.cli.main import main
from vinelm.replay.kept import opened
from vinelm.replay.labelling.desk import Desk, text_of
from vinelm.replay.labelling.page import FORMAT
from vinelm.replay.labels import scores


@pytest.fixture
def path(asking, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return shutil.copy(asking, tmp_path / "a.db")


def labels(path):
    with opened(path) as kept:
        return [(row["question_id"], row["choice"], row["who"]) for row in kept.rows.labels()]


def test_the_desk_hands_out_takes_and_takes_back(path):
    with opened(path) as kept:
        desk = Desk(kept)
        first = desk.next_question("ann")
        assert {"".join(text for text, _ in first[side]) for side in ("left", "right")} < set(LABELS)
        assert first["prompt"][-1][0] == "user"
        assert desk.standing() == "0 questions answered, 10 waiting"
        desk.put_label(first["question"], "left", "ann")
        second = desk.next_question("ann")
        assert second["question"] != first["question"]
        assert desk.standing() == "1 question answered, 9 waiting"
        assert desk.undo("ann") == first
        assert desk.undo("ann") is None
        assert desk.knows(first["question"])
        assert not desk.knows(10_000)
        json.dumps(desk.next_questions("ann", 10))


def test_keys_label_undo_and_stop(path, monkeypatch, capfd):
    keys = iter("p1u32x5q")
    monkeypatch.setattr("click.getchar", lambda: next(keys))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    assert main(["label", str(path), "--who", "ann"]) == 0
    assert [(choice, who) for _, choice, who in labels(path)] == [("both", "ann"), ("right", "ann"), ("skip", "ann")]
    shown = capfd.readouterr().out
    assert "3 questions answered, 7 waiting" in shown
    assert "\\x1b" not in shown
    assert next(keys, None) is None


def test_a_file_goes_out_and_its_answers_come_back(path, tmp_path, capfd):
    assert main(["label", str(path), "--file", "questions.html", "--questions", "4", "--who", "bob"]) == 0
    page = tmp_path / "questions.html"
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    asked = json.loads(
        page.read_text(encoding="utf-8").split('type="application/json"')[1].split(">", 1)[1].split("</script")[0]
    )
    assert len(asked["questions"]) == 4
    answers = [{"question": one["question"], "choice": "neither"} for one in asked["questions"]]
    (tmp_path / "labels.json").write_text(json.dumps({"format": FORMAT, "who": "bob", "labels": answers}), encoding="utf-8")
    assert main(["label", str(path), "--read", "labels.json"]) == 0
    assert "4 labels of bob kept." in capfd.readouterr().out
    assert [who for *_, who in labels(path)] == ["bob"] * 4
    assert main(["label", str(path), "--file", "questions.html"]) == 2  # it is not written over
    assert "questions.html exists" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "labels are typed on a terminal, and this is none: use --page or --file"),
        (["--page", "--file", "a.html"], "use one at a time"),
        (["--read", "a.db"], "not the answers that a page of `vinelm label --file` saves"),
        (["--file", "no/such/a.html"], "cannot be written"),
    ],
)
def test_what_cannot_be_done_is_one_line(path, options, said, capfd):
    assert main(["label", str(path), *options]) == 2
    error = capfd.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_store_that_is_none_is_one_line(tmp_path, capfd):
    assert main(["label", str(tmp_path / "no.db")]) == 2
    assert "no such store: `vinelm replay` or `vinelm try` makes one" in capfd.readouterr().err


def test_answers_are_shown_as_persons_read_them():
    call = {"name": "search", "args": {"query": "a parcel", "limit": 3}}
    assert text_of({"content": "", "tool_calls": [call]}) == "calls search\n  query: a parcel\n  limit: 3"
    assert text_of({"content": "Yes.", "tool_calls": []}) == "Yes."
    assert text_of({"content": "", "tool_calls": []}) == "(no text)"


# -- scores from 0 to 1 ------------------------------------------------------------------------------------------


def test_scores_are_typed_for_both_answers(path, monkeypatch, capfd):
    keys, typed = iter("ggg1q"), iter(["0.7 0.4", "2 0", "1/0.25"])
    monkeypatch.setattr("click.getchar", lambda: next(keys))
    monkeypatch.setattr("click.prompt", lambda *_, **__: next(typed))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    assert main(["label", str(path), "--who", "ann"]) == 0
    assert [choice for _, choice, _ in labels(path)] == ["0.7/0.4", "1/0.25", "left"]
    assert "not kept: give two scores from 0 to 1" in capfd.readouterr().out
    with opened(path) as kept:
        sides = {row["question_id"]: row["is_today_left"] for row in kept.rows.questions()}
        found = [(sides[number], score) for number, score in scores(kept).values()]
    assert [score if is_left else -score for is_left, score in found] == pytest.approx([-0.3, -0.75, -1.0])


def test_a_file_may_bring_scores_back_but_none_outside_of_0_to_1(path, tmp_path, capfd):
    with opened(path) as kept:
        number = Desk(kept).next_question("bob")["question"]
    for choice, code in (("0.5/1", 0), ("0.5/1.5", 2), ("nan/0", 2), ("0.5", 2)):
        answers = {"format": FORMAT, "who": "bob", "labels": [{"question": number, "choice": choice}]}
        (tmp_path / "labels.json").write_text(json.dumps(answers), encoding="utf-8")
        assert main(["label", str(path), "--read", "labels.json"]) == code
    assert [choice for _, choice, _ in labels(path)] == ["0.5/1"]


def test_an_own_scorer_answers_what_waits(path, tmp_path, capfd):
    (tmp_path / "own_rules.py").write_text(
        "def score(messages, answer):\n"
        "    assert messages[-1]['content'].startswith('Question ')\n"
        "    return len(answer['content']) / 10\n\n\n"
        "def fails(messages, answer):\n    raise ValueError(messages)\n\n\n"
        "def high(messages, answer):\n    return 2\n"
    )
    for name, said in (
        ("fails", "the function given as score raised ValueError"),
        ("high", "score returned 2: return a score"),
    ):
        assert main(["label", str(path), "--score", f"own_rules:{name}"]) == 2
        assert said in capfd.readouterr().err
    assert labels(path) == []
    assert main(["label", str(path), "--score", "own_rules:score"]) == 0
    assert "10 questions answered by own_rules:score" in capfd.readouterr().out
    assert {who for *_, who in labels(path)} == {"own_rules:score"}
    assert main(["label", str(path), "--score", "own_rules:score"]) == 0
    assert len(labels(path)) == 10
