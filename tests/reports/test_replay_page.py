"""The page of a replay: the card's figures are those of the steps that switch, and no text of a prompt is on it."""

from dataclasses import replace

from vinelm.replay import ReplayResult, StepResult
from vinelm.reports.pictures.html import write_page
from vinelm.reports.replay_page import replay_page

SWITCH = StepResult(
    step="answer", advice="switch", today="gpt-4o", plan="gpt-5-mini", usd=40.0, saved=0.75, differing=3, seen=200,
    latency_s=1.0, today_s=2.0, noise=(1, 40), labels=3, proven=0.03, needed={0.02: 9}, how="text exactly",
    notes=("in 4 of 200 requests the step is called several times: one call was drawn",), paste="llm = ...",
    table=(("gpt-5-nano", 0.99, 20, 66), ("gpt-5-mini", 0.75, 1, 66)),
    texts=({"messages": [{"role": "user", "content": "a secret prompt"}], "today": "a", "other": "b", "score": None},),
)  # fmt: skip
KEEP = StepResult(step="<b>grade</b>", advice="keep", today="gpt-4o", usd=10.0, why="none of the models would save 20 %")


def test_the_card_has_the_figures_of_what_switches(tmp_path):
    found = ReplayResult(steps=(SWITCH, KEEP), others={"rest": 0.01}, spent_usd=0.5, budget_usd=2.0)
    report = replay_page(found, "a.db")
    assert (report.card.word, report.card.rest) == ("SWITCH", "in 1 of 2 steps")
    shown = {one.name: (one.before, one.after, one.change) for one in report.card.measures}
    assert shown["Dollars a month"] == ("$50.00", "$20.00", "-60 %")
    assert shown["Answers that differ"][0] == "1.5 %"
    assert shown["Loss of a step, at most"][0] == "3 points"
    assert shown["Seconds of these steps"][2] == "-50 %"
    page = write_page(report, tmp_path / "replay.html").read_text(encoding="utf-8")
    assert SWITCH.sentence.split(":")[0].replace("`", "") in page.replace("`", "")
    assert "<b>grade</b>" not in page
    assert "99.0" in page
    assert "a secret prompt" not in page


def test_a_page_without_a_switch_says_what_comes_next(tmp_path):
    waiting = replace(SWITCH, advice="undecided", proven=None, waiting=4, why="it waits", paste="", texts=())
    card = replay_page(ReplayResult(steps=(KEEP, waiting), others={}, spent_usd=0.0, budget_usd=1.0), "a.db").card
    assert (card.word, card.rest, card.code, card.command) == ("UNDECIDED", "", "", "vinelm label a.db")
    assert (card.measures[-1].name, card.measures[-1].before) == ("Not proven yet", "$30.00")
    card = replay_page(ReplayResult(steps=(KEEP,), others={}, spent_usd=0.0, budget_usd=1.0), "a.db").card
    assert (card.word, card.measures[0].before, card.measures[0].after) == ("KEEP", "$10.00", "")
    bad = replace(KEEP, advice="not enough data")
    assert (
        replay_page(ReplayResult(steps=(bad,), others={}, spent_usd=0.0, budget_usd=1.0), "a.db").card.word == "NOT ENOUGH DATA"
    )
