"""The picture of policies by accuracy and dollars: names in their place, and no chart library."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from vinelm.reports.document import Dot, Scatter
from vinelm.reports.pictures.scatter import plot_scatter

EVIL = '<script>"&'


def dot(name, usd, accuracy, role="model"):
    low, high = accuracy - 0.05, min(accuracy + 0.05, 1.0)
    return Dot(name=name, role=role, usd=usd, accuracy=accuracy, low=low, high=high, hover=f"{name}: {accuracy:.0%}")


DOTS = (
    dot("deepseek-coder-6.7b", 0.46, 0.60),
    dot("gpt-3.5-turbo", 1.67, 0.62),
    dot("gemini-pro", 1.74, 0.63),
    dot("best fixed plan", 2.18, 0.73, "static"),
    dot("VineLM", 2.26, 0.75, "vinelm"),
    dot(EVIL, 22.53, 0.70),
)
SCATTER = Scatter(name="s", title="Right answers", caption="c", dots=DOTS)


def names(svg):
    """Where each dot's name begins and ends, by its name."""
    found = {}
    for text in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
        if text.text in {one.name for one in DOTS}:
            x = float(text.attrib["x"])
            found[text.text] = (x, x + 12 * 0.56 * len(text.text), float(text.attrib["y"]))
    return found


@pytest.mark.parametrize(("kind", "width"), [("wide", 560), ("narrow", 360)])
def test_every_dot_has_its_name_inside_the_picture_and_none_covers_another(kind, width):
    found = names(plot_scatter(SCATTER, kind, "label"))
    assert set(found) == {one.name for one in DOTS}
    places = list(found.values())
    for i, (left, right, base) in enumerate(places):
        assert left >= 0
        assert right <= width + 2
        assert not any(left < r and right > l and abs(base - b) < 11 for l, r, b in places[:i])  # noqa: E741


@pytest.mark.parametrize("kind", ["wide", "narrow"])
def test_of_two_close_dots_the_left_one_is_not_named_on_the_side_of_the_other(kind):
    found = names(plot_scatter(SCATTER, kind, "label"))
    assert found["gpt-3.5-turbo"][0] < found["gemini-pro"][0]


def test_vinelm_is_the_diamond_and_each_dot_can_be_read_out():
    svg = plot_scatter(SCATTER, "wide", "label", note="simulated models")
    assert len(re.findall(r'l9 9l-9 9l-9 -9z" fill="var\(--vinelm\)"', svg)) == 1
    assert svg.count('class="hit"') == len(DOTS)
    assert 'data-tip="VineLM: 75%"' in svg
    assert "simulated models" in svg


def test_equal_accuracies_without_a_line_are_drawn():
    same = [replace(dot(name, usd, 0.5), low=0.5, high=0.5) for name, usd in (("a", 1.0), ("b", 2.0))]
    svg = plot_scatter(replace(SCATTER, dots=tuple(same)), "narrow", "label")
    assert svg.count('class="hit"') == 2


def test_where_names_have_no_room_those_of_models_alone_are_left_out():
    crowd = tuple(dot(f"model-number-{i}", 1.0 + i / 100, 0.6 + i / 1000) for i in range(40))
    own = (dot("VineLM", 1.2, 0.62, "vinelm"), dot("today", 1.21, 0.62, "in_use"))
    svg = plot_scatter(replace(SCATTER, dots=(*crowd, *own)), "narrow", "label")
    assert svg.count('class="hit"') == 42, "each says its name"
    assert {">VineLM<", ">today<"} <= set(re.findall(r">[^<>]+<", svg))
    assert 0 < svg.count(">model-number-") < 40
