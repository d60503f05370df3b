"""Pictures of graphs and plans: everything in its place, whatever the graph."""

import re
import xml.etree.ElementTree as ET
from html import unescape

import pytest

from vinelm.reports.budgets import BudgetSlider, BudgetStop, GraphPicture, PlanNode, PlanTree, StageBars
from vinelm.reports.pictures.budgets import plot_stage_bars, plotted_budgets
from vinelm.reports.pictures.graph import plot_graph
from vinelm.reports.pictures.sketch import fitted, wrapped
from vinelm.reports.pictures.tree import plot_tree
from vinelm.template import END, Branch, Loop, Parallel, Stage, Template

M = ("m", "n")
S = {name: Stage(name, M) for name in ("draft", "search", "check", "write", "left", "right", "a<b>", "last")}
EVIL = "<script>alert(1)</script>"
TEMPLATES = {
    "chain": Template((S["draft"], S["write"])),
    "loop": Template((S["draft"], Loop((S["check"], S["write"]), times=3))),
    "turn": Template((Loop((S["draft"],), times=1), S["write"])),
    "branch": Template((S["draft"], Branch({"look": (S["search"],), "stop": END, EVIL: ()}), S["write"])),
    "ends": Template((S["draft"], Branch({"one": (S["search"], END), "two": (S["write"], END)}))),
    "side": Template((S["draft"], Parallel((S["left"], S["right"])), S["write"])),
    "nested": Template(
        (
            S["draft"],
            Branch({"deep": (Loop((S["search"], Branch({"x": (S["check"],), "y": ()})), times=2),), "flat": (S["a<b>"],)}),
            S["write"],
        )
    ),
    "long": Template(tuple(S.values())),
}


def colour_of(model):
    return M.index(model) if model in M else len(M)


def boxes(svg):
    """The places that can be pointed at: x, y, width, height and words."""
    ET.fromstring(svg)  # well-formed, whatever the names
    found = re.findall(r'<rect class="hit" x="(.+?)" y="(.+?)" width="(.+?)" height="(.+?)" data-tip="(.*?)"/>', svg, re.S)
    return [(*map(float, place), unescape(words)) for *place, words in found]


def size(svg):
    return [float(part) for part in re.search(r'viewBox="0 0 (\d+) (\d+)"', svg).groups()]


def require_apart(svg):
    found, (width, height) = boxes(svg), size(svg)
    for x, y, w, h, _ in found:
        assert x >= 0
        assert y >= 0
        assert x + w <= width
        assert y + h <= height
    for i, (x, y, w, h, one) in enumerate(found):
        for u, v, s, t, other in found[:i]:
            assert x + w <= u or u + s <= x or y + h <= v or v + t <= y, (one, other)
    return found


@pytest.mark.parametrize("kind", ["wide", "narrow"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_every_stage_of_a_graph_has_its_box_and_none_covers_another(name, kind):
    template = TEMPLATES[name]
    calls = {"draft": (("m", 1.0),), "write": (("m", 0.25), (EVIL, 0.75))}
    svg = plot_graph(GraphPicture(template=template, calls=calls), colour_of, kind, "g", "simulated models")
    found = require_apart(svg)
    assert sorted(words.splitlines()[0] for *_, words in found) == sorted(stage.name for stage in template.stages)
    says = {words.splitlines()[0]: words for *_, words in found}
    assert says["draft"] == "draft\nm: 1,000 calls per 1,000 requests"
    assert all("not called" in words for stage, words in says.items() if stage not in calls)
    assert EVIL not in svg
    assert "simulated models" in svg
    if "write" in says:
        assert f"{EVIL}: 750 calls" in says["write"]
        assert ">75 %<" in svg


def test_words_of_loops_and_branches_are_on_the_graph():
    svg = plot_graph(GraphPicture(template=TEMPLATES["nested"], calls={}), colour_of, "wide", "g")
    assert {"up to 2 times", "deep", "flat", "x", "y"} <= set(re.findall(r">([^<>]+)</text>", svg))
    side = plot_graph(GraphPicture(template=TEMPLATES["side"], calls={}), colour_of, "narrow", "g")
    assert "side by side" in side


def test_many_models_of_a_stage_are_counted():
    calls = {"draft": tuple((f"m{i}", 0.1) for i in range(9))}
    svg = plot_graph(GraphPicture(template=TEMPLATES["chain"], calls=calls), colour_of, "wide", "g")
    assert "and 6 more" in svg


def node(stage, model, share, *children, when=""):
    return PlanNode(stage=stage, model=model, when=when, seen=(when,) if when else (), share=share, children=children)


@pytest.mark.parametrize("kind", ["wide", "narrow"])
@pytest.mark.parametrize("depth", [1, 4, 12])
def test_steps_of_a_tree_stand_apart(kind, depth):
    chain = node("last", "m", 0.1)
    for i in range(depth - 1):
        end = node("", None, 0.2, when="passed, with many words that have no room in one line of a box")
        chain = node(f"s{i}", EVIL, 0.5, chain, end)
    svg = plot_tree(PlanTree(roots=(chain,)), colour_of, kind, "t")
    found = require_apart(svg)
    assert len(found) == 2 * depth - 1
    assert EVIL not in svg
    assert ("the request has its answer" in svg) == (depth > 1)


def test_bars_are_as_long_as_their_amounts():
    stages = (("draft", (("VineLM", (("m", 1.0), ("n", 1.0))), ("today", (("m", 4.0),)))),)
    svg = plot_stage_bars(StageBars(stages=stages, most=4.0, amount=lambda value: f"${value:g}"), colour_of, "wide", "b")
    (_, _, own, _, said), (_, _, other, _, _) = boxes(svg)
    assert own == pytest.approx(other / 2, abs=1)
    assert said == "draft, VineLM: $2\nm: $1\nn: $1"
    assert {">$2<", ">$4<", ">today<"} <= set(re.findall(r">[^<>]+<", svg))
    empty = StageBars(stages=(("draft", (("VineLM", ()),)),), most=0.0, amount=str)
    assert boxes(plot_stage_bars(empty, colour_of, "narrow", "b"))


def test_of_too_many_pictures_every_second_budget_is_left_out(monkeypatch):
    def stop(i):
        graph = GraphPicture(template=TEMPLATES["chain"], calls={"draft": (("m", 1.0 + i),)})
        tree = PlanTree(roots=(node("draft", "m", 1.0),))
        return BudgetStop(budget=f"{i}", plan="", figures=(), graph=graph, tree=tree, bars={})

    slider = BudgetSlider(intro="", stops=tuple(map(stop, range(9))), start=4, beside="", models=M)
    whole, parts = plotted_budgets(slider, "")
    assert [len(whole.stops), *(len(part.shown) for part in parts)] == [9, 9, 9]
    monkeypatch.setattr("vinelm.reports.pictures.budgets.MOST_CHARACTERS", 5_000)
    fewer, parts = plotted_budgets(slider, "")
    assert [one.budget for one in fewer.stops] == ["0", "4", "8"]
    assert fewer.stops[0] == slider.stops[0]
    assert fewer.stops[fewer.start].budget == "4", "what is shown first stays"
    assert all(len(part.shown) == len(fewer.stops) for part in parts)


def test_words_are_cut_to_their_room():
    assert fitted("a long name of a model", 60) == "a long…"
    assert wrapped("one two three four", 60) == ["one two", "three f…"]
    assert wrapped("one", 60) == ["one"]
