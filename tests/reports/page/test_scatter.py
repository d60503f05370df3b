"""The picture of policies by accuracy and dollars: names in their place, and no chart library."""

import re
import sys
import xml.etree.ElementTree as ET

import pytest

from vinelm.reports import Report, render
from vinelm.reports.document import Dot, Scatter
from vinelm.reports.drawing.scatter import draw_scatter

EVIL = '<script>"&'


def dot(name, usd, accuracy, role="model"):
    return Dot(name=name, role=role, usd=usd, accuracy=accuracy, low=accuracy - 0.05, high=min(accuracy + 0.05, 1.0))


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


@pytest.mark.parametrize(("kind", "width"), [("wide", 880), ("narrow", 350)])
def test_every_dot_has_its_name_inside_the_picture_and_none_covers_another(kind, width):
    found = names(draw_scatter(SCATTER, kind, "label"))
    assert set(found) == {one.name for one in DOTS}
    places = list(found.values())
    for i, (left, right, base) in enumerate(places):
        assert left >= 0
        assert right <= width + 2
        assert not any(left < r and right > l and abs(base - b) < 11 for l, r, b in places[:i])  # noqa: E741


@pytest.mark.parametrize("kind", ["wide", "narrow"])
def test_of_two_close_dots_the_left_one_is_not_named_on_the_side_of_the_other(kind):
    found = names(draw_scatter(SCATTER, kind, "label"))
    assert found["gpt-3.5-turbo"][0] < found["gemini-pro"][0]


def test_vinelm_is_the_diamond_and_each_dot_can_be_read_out():
    svg = draw_scatter(SCATTER, "wide", "label", note="simulated models")
    assert len(re.findall(r'l9 9l-9 9l-9 -9z" fill="var\(--vinelm\)"', svg)) == 1
    assert svg.count('class="hit"') == len(DOTS)
    assert "75.0 % right (95 %: 70.0 to 80.0)" in svg
    assert "simulated models" in svg


def test_a_page_with_it_alone_needs_no_chart_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    report = Report(title="t", subtitle="s", headline="h", is_gain=True, findings=(), sections=(), provenance=(), hero=SCATTER)
    page = render(report)
    assert page.count('<svg class="') == 2
    assert EVIL not in page
