import re

import pytest

from vinelm.errors import ConfigError
from vinelm.reports import Report, render, write_page
from vinelm.reports.document import Chart, Row, Section, Series, Table

SERIES = Series(name="VineLM", role="vinelm", x=[0.001, 0.01], y=[0.5, 0.6], low=[0.4, 0.5], high=[0.6, 0.7], hover=["a", "b"])
CLOUD = Series(name="models", role="model", x=[0.002], y=[0.5], low=[0.3], high=[0.6], is_line=False)


def make_report(**fields) -> Report:
    chart = Chart(name="cost", title="Frontier", caption="c", x_title="x", y_title="y", series=(SERIES, CLOUD), x_is_log=True)
    table = Table(title="Behind it", columns=("policy", "accuracy"), rows=(Row(cells=("VineLM", "50 %"), role="vinelm"),))
    plain = {
        "title": "A <title>",
        "subtitle": "s",
        "headline": "No gain: use model m1.",
        "is_gain": False,
        "findings": ("one & two",),
        "sections": (Section(title="Frontiers", parts=(chart, table)),),
        "provenance": (("seed", "0"),),
    }
    return Report(**{**plain, **fields})


def test_the_page_asks_nobody_for_anything():
    page = render(make_report())
    assert "default-src 'none'" in page
    assert re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page) is None
    assert "@import" not in page
    assert re.search(r"url\((?!#)", page) is None


def test_a_page_without_pictures_is_small():
    assert len(render(make_report(sections=()))) < 30_000
    assert "<figure" not in render(make_report(sections=()))


def test_text_is_escaped_in_tables_and_in_pictures():
    names = "<i>m&m$x$$"
    series = Series(name=names, role="vinelm", x=[1.0, 2.0], y=[0.5, 0.6], hover=[names, "b"])
    chart = Chart(
        name="c",
        title=names,
        caption=names,
        x_title=names,
        y_title="y",
        series=(series,),
    )
    page = render(make_report(sections=(Section(title=names, parts=(chart,)),)))
    assert "<i>" not in page.split("<header>")[1]
    assert "<h1>A &lt;title&gt;</h1>" in page
    assert "one &amp; two" in page
    drawn = re.findall(r"<text[^>]*>([^<]*m&amp;m[^<]*)</text>", page)
    assert len(drawn) >= 2, "each picture has the name, wide and narrow"
    assert all("$x$" in text for text in drawn), "dollar signs are no formula"


def test_simulated_models_are_said_in_the_head():
    page = render(make_report(simulated="Eight of them."))
    assert "<title>A &lt;title&gt; (simulated models)</title>" in page
    head = page.split("<main")[0]
    assert "Simulated models.</b> Eight of them." in head
    assert "imulated models" not in render(make_report())


def test_the_verdict_comes_first():
    page = render(make_report())
    assert page.index("No gain: use model m1.") < page.index("<main")


def test_pictures_are_wide_and_narrow_and_take_the_colours_of_the_page():
    page = render(make_report())
    for kind in ("wide", "narrow"):
        (svg,) = re.findall(rf'<svg class="{kind}".*?</svg>', page, re.S)
        assert "var(--vinelm)" in svg
        assert "var(--model)" in svg
        assert "#a1b0" not in svg
        assert svg.count('class="hit"') == 2
        assert 'role="img" aria-label="Frontier' in svg
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert render(make_report()) == page, "the same report gives the same page"


def points_of(svg, name):
    """Where the points of a wide picture are, by what they say."""
    (wide,) = re.findall(rf'id="chart-{name}".*?<svg class="wide"(.*?)</svg>', svg, re.S)
    found = re.findall(r'cx="([\d.]+)" cy="([\d.]+)" r="9" data-tip="([^"]*)"', wide)
    return {tip: (float(x), float(y)) for x, y, tip in found}


def test_points_stand_where_their_values_are():
    found = points_of(render(make_report()), "cost")
    assert set(found) == {"a", "b"}
    assert found["a"][0] < found["b"][0]
    assert found["a"][1] > found["b"][1], "more is higher"


def test_writing_makes_the_folder_and_leaves_no_part_behind(tmp_path):
    target = write_page(make_report(), tmp_path / "a" / "report.html")
    assert target.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [p.name for p in target.parent.iterdir()] == ["report.html"]


def test_a_folder_that_is_a_file_is_bad_input(tmp_path):
    (tmp_path / "a").write_text("x")
    with pytest.raises(ConfigError, match="cannot write the report"):
        write_page(make_report(), tmp_path / "a" / "report.html")


def test_a_picture_says_itself_that_its_models_are_simulated():
    said = [">simulated models<" in render(make_report(**fields)) for fields in ({"simulated": "Eight of them."}, {})]
    assert said == [True, False]
