import json
import re

import pytest

from vinelm.errors import ConfigError
from vinelm.reports import Chart, Report, Row, Section, Series, Table, figure, render, write_page

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


def own_text(page: str) -> str:
    """The page without Plotly's script."""
    return re.sub(r"<script>/\*.*?</script>", "", page, count=1, flags=re.S)


def test_the_page_asks_nobody_for_anything():
    page = own_text(render(make_report()))
    assert "default-src 'none'" in page
    assert re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page) is None
    assert "@import" not in page
    assert "url(" not in page


def test_the_script_is_inlined_once_and_not_without_charts():
    assert render(make_report()).count("plotly.js v") == 1
    assert len(render(make_report(sections=()))) < 20_000


def test_text_is_escaped_and_the_figures_are_json():
    page = own_text(render(make_report()))
    assert "<h1>A &lt;title&gt;</h1>" in page
    assert "one &amp; two" in page
    plain = re.search(r"const figures = (.*);", page)
    assert plain is not None
    assert list(json.loads(plain[1])) == ["cost"]


def test_simulated_models_are_said_in_the_head():
    page = own_text(render(make_report(simulated="Eight of them.")))
    assert "<title>A &lt;title&gt; (simulated models)</title>" in page
    head = page.split("<main>")[0]
    assert "Simulated models.</b> Eight of them." in head
    assert "imulated models" not in own_text(render(make_report()))


def test_the_verdict_comes_first():
    page = own_text(render(make_report()))
    assert page.index("No gain: use model m1.") < page.index("<main>")


def test_a_figure_has_a_band_for_lines_and_bars_for_clouds():
    drawn = figure(make_report().sections[0].parts[0])  # type: ignore[arg-type]
    band, line, cloud = drawn["data"]
    assert band["x"] == [0.001, 0.01, 0.01, 0.001]
    assert band["y"] == [0.6, 0.7, 0.5, 0.4]
    assert line["name"] == "VineLM"
    assert cloud["error_y"]["arrayminus"] == [pytest.approx(0.2)]
    assert drawn["layout"]["xaxis"]["type"] == "log"
    json.dumps(drawn, allow_nan=False)


def test_writing_makes_the_folder_and_leaves_no_part_behind(tmp_path):
    target = write_page(make_report(), tmp_path / "a" / "report.html")
    assert target.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [p.name for p in target.parent.iterdir()] == ["report.html"]


def test_a_folder_that_is_a_file_is_bad_input(tmp_path):
    (tmp_path / "a").write_text("x")
    with pytest.raises(ConfigError, match="cannot write the report"):
        write_page(make_report(), tmp_path / "a" / "report.html")


def test_a_chart_says_itself_that_its_models_are_simulated():
    notes = []
    for fields in ({"simulated": "Eight of them."}, {}):
        plain = re.search(r"const figures = (.*);", own_text(render(make_report(**fields))))
        assert plain is not None
        notes.append([note["text"] for note in json.loads(plain[1])["cost"]["layout"]["annotations"]])
    assert notes == [["simulated models"], []]


def test_the_summary_stands_between_the_headline_and_the_findings():
    summary = Table(
        title="All of it", columns=("wanted", "so"), rows=(Row(cells=("cost <= $1 <b>", "use VineLM"), detail="d"),)
    )
    page = own_text(render(make_report(summary=summary)))
    places = [
        page.index(text)
        for text in ("No gain: use", "All of it", "cost ≤\N{NO-BREAK SPACE}$1 &lt;b&gt;", "one &amp; two", "<main>")
    ]
    assert places == sorted(places)
