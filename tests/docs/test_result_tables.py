"""What the pages quote is what the result files say, and each of those says what made it."""

import json
import re
import sys
from pathlib import Path

import pytest
import result_tables as script

ROOT = Path(__file__).parents[2]
FOUND = {"rows": {"a": {"x": 0.123, "n": 1200}, "b": {"n": 7}}, "points": [{"y": 1.5}, {"y": 2.5}], "with/slash": {"k": 3}}


def made(script, spec):
    return script.table(spec, lambda name: FOUND)


def test_the_pages_quote_the_results():
    pages = list(script.pages(ROOT))
    assert ROOT / "docs" / "reproduction.md" in pages
    for page in pages:
        text = page.read_text(encoding="utf-8")
        outside = script.OUTSIDE.get(page.relative_to(ROOT).as_posix(), {})
        assert script.fresh(text, script.reader(ROOT), outside) == text, f"{page.name}: run python scripts/result_tables.py"


def test_result_files_say_what_made_them():
    for path in sorted((ROOT / "results").glob("*")):
        found = script.reader(ROOT)(path.name)
        made = re.fullmatch(r"python ((?:scripts|tests/attacks)/\w+\.py)((?: [^/\s]+)*)", found["command"])
        assert made, f"{path.name}: {found['command']!r}: a script of this repository, and no path of a machine"
        assert (ROOT / made[1]).is_file(), path.name
        assert re.fullmatch(r"[0-9a-f]{40}( \+ changes)?", found["commit"]), path.name
        assert path.stat().st_size < 500_000, path.name


def test_every_result_file_is_quoted_by_a_page():
    assert script.unquoted(ROOT) == []


def test_a_result_file_that_no_page_quotes_is_named(tmp_path):
    for folder in ("results", "docs"):
        (tmp_path / folder).mkdir()
    for name in ("a.json", "b.json", "c.json", "d.json"):
        (tmp_path / "results" / name).write_text("{}")
    (tmp_path / "README.md").write_text("<!-- value: a.json | /x : d -->1<!-- end of value -->")
    (tmp_path / "docs" / "page.md").write_text(
        "<!-- result: b.json | rows /x | x = * -->\n<!-- end of result -->\nand c.json, results/d.json"
    )
    assert script.unquoted(tmp_path) == ["c.json"]


def test_the_check_fails_where_a_page_differs_or_a_result_is_not_quoted(tmp_path, monkeypatch, capsys):
    (tmp_path / "results").mkdir()
    made = {"command": "python scripts/x.py", "commit": "0" * 40, "x": 2}
    (tmp_path / "results" / "a.json").write_text(json.dumps(made))
    page = tmp_path / "README.md"
    page.write_text("It is <!-- value: a.json | /x : d -->1<!-- end of value -->.")
    monkeypatch.setattr(script, "ROOT", tmp_path)
    monkeypatch.setattr(script, "OUTSIDE", {})
    monkeypatch.setattr(sys, "argv", ["result_tables.py", "--check"])
    assert script.main() == 1
    assert "README.md: differs" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["result_tables.py"])
    assert script.main() == 0
    assert "-->2<" in page.read_text()
    (tmp_path / "results" / "b.json").write_text(json.dumps(made))
    assert script.main() == 1
    assert "results/b.json: no page names it" in capsys.readouterr().out


def test_a_table_takes_its_numbers_by_place():
    spec = "f.json | rows /rows | name = * | share = /rows/*/x : .1% | n = /rows/*/n : ,"
    assert made(script, spec) == "| name | share | n |\n| --- | --- | --- |\n| a | 12.3% | 1,200 |\n| b | - | 7 |\n"
    assert made(script, "f.json | rows /points | point = * | y = /points/*/y : .2f").endswith("| 1 | 2.50 |\n")
    assert made(script, "f.json | rows /with~1slash | k = /with~1slash/* : d").endswith("| 3 |\n")


def test_a_changed_number_is_seen_and_mended():
    page = "Text\n<!-- result: f.json | rows /rows | name = * | n = /rows/*/n -->\nold\n<!-- end of result -->\nmore\n"
    mended = script.fresh(page, lambda name: FOUND)
    assert mended != page
    assert "old" not in mended
    assert mended.startswith("Text\n<!-- result: f.json")
    assert mended.endswith("<!-- end of result -->\nmore\n")
    assert script.fresh(mended, lambda name: FOUND) == mended
    changed = json.loads(json.dumps(FOUND))
    changed["rows"]["b"]["n"] = 8
    assert script.fresh(mended, lambda name: changed) != mended


def test_a_number_in_a_sentence_is_the_result_s():
    page = "It is <!-- value: f.json | /rows/a/x : .1% -->9<!-- end of value --> of <!-- value: f.json | /rows/b/n : d -->7"
    page += "<!-- end of value -->.\n"
    mended = script.fresh(page, lambda name: FOUND)
    assert mended == page.replace("-->9<", "-->12.3%<")
    with pytest.raises(script.ResultTableError, match="nothing at /rows/c"):
        script.fresh(page.replace("/rows/a/x", "/rows/c"), lambda name: FOUND)


@pytest.mark.parametrize(
    "spec",
    [
        "f.json | rows /nothing | name = *",
        "f.json | name = *",
        "f.json | rows /rows | no place",
        "f.json | rows /rows | z = /rows/*/z",
    ],
)
def test_what_the_results_do_not_have_is_refused(spec):
    with pytest.raises(script.ResultTableError):
        made(script, spec)


def test_a_table_without_a_comment_is_checked_from_outside():
    outside = {"## Pays?": "f.json | rows /points 1 0 | point = * | y = /points/*/y : .1f"}
    page = "## Other\n\n| a |\n\n## Pays?\n\nText.\n\n| old |\n| --- |\n\nMore.\n"
    mended = script.fresh(page, lambda name: FOUND, outside)
    assert mended == page.replace("| old |\n| --- |\n", "| point | y |\n| --- | --- |\n| 1 | 2.5 |\n| 0 | 1.5 |\n")
    assert script.fresh(mended, lambda name: FOUND, outside) == mended
    with pytest.raises(script.ResultTableError, match="no table below '## Pays"):
        script.fresh("## Pays?\n\n## Other\n\n| a |\n", lambda name: FOUND, outside)


def test_results_without_a_command_are_refused(tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "x.json").write_text('{"commit": "abc"}')
    with pytest.raises(script.ResultTableError, match="command"):
        script.reader(tmp_path)("x.json")
    with pytest.raises(script.ResultTableError, match="cannot be read"):
        script.reader(tmp_path)("none.json")


def test_a_column_may_hold_several_values_and_points():
    spec = "f.json | rows /rows | name = * | both = {/rows/*/x:.1p} / {/rows/*/n:,}"
    assert made(script, spec).splitlines()[2:] == ["| a | 12.3 / 1,200 |", "| b | - / 7 |"]
    assert script.shown(-0.0123, "+.1p") == "-1.2"
    assert script.shown([0.01, None, -0.02], "+.0p") == "+1, -, -2"
    with pytest.raises(script.ResultTableError, match="nothing for the column 'z'"):
        made(script, "f.json | rows /rows | z = {/rows/*/y:.1f} and {/rows/*/z}")


def test_the_pages_claim_what_the_intervals_say():
    for page in script.pages(ROOT):
        text = page.read_text(encoding="utf-8")
        assert script.claims(text, script.reader(ROOT)) == [], page.name
        if page.relative_to(ROOT).as_posix() in script.CLAIMED:
            assert script.unheld(text) == [], f"{page.name}: say by which interval: <!-- claim: FILE | PLACE | ahead -->"
    assert {page.relative_to(ROOT).as_posix() for page in script.pages(ROOT)} >= {*script.CLAIMED}


@pytest.mark.parametrize(
    ("place", "verb", "text", "wrong"),
    [
        ("/rows/*/lead", "ahead", "is ahead of", ["0.01 [-0.01, 0.02]"]),
        ("/rows/0/lead", "ahead", "is ahead of", []),
        ("/rows/0/lead", "ahead", "saves dollars", []),
        ("/rows/1/lead", "ahead", "is\nmore accurate", ["0.01 [-0.01, 0.02]"]),
        ("/rows/1/lead", "same", "by no more than chance", []),
        ("/rows/0/lead", "same", "as accurate", ["0.02 [0.01, 0.03]"]),
        ("/rows/0/lead", "behind", "is behind", ["0.02 [0.01, 0.03]"]),
        ("/rows/2/lead", "behind", "is behind", []),
        ("/rows/3/lead", "ahead", "saves 40 %", ["0.4 [-, 0.5]"]),
        ("/rows/0/lead", "ahead", "wins", ["no claim of the kind"]),
        ("/rows/0/lead", "best", "is ahead of", ["no claim of the kind"]),
    ],
)
def test_a_claim_has_to_be_that_of_its_interval(place, verb, text, wrong):
    ends = [(0.02, 0.01, 0.03), (0.01, -0.01, 0.02), (-0.02, -0.03, -0.01), (0.4, None, 0.5)]
    found = {"rows": [{"lead": dict(zip(("value", "low", "high"), one, strict=True))} for one in ends]}
    if "*" in place:
        found["rows"] = found["rows"][:2]
    page = f"VineLM <!-- claim: f.json | {place} | {verb} -->{text}<!-- end of claim --> it."
    told = script.claims(page, lambda name: found)
    assert len(told) == len(wrong)
    assert all(one in line for one, line in zip(wrong, told, strict=True))


def test_a_claim_needs_an_interval():
    page = "<!-- claim: f.json | /rows/a | ahead -->is ahead<!-- end of claim -->"
    with pytest.raises(script.ResultTableError, match="no interval at /rows/a"):
        script.claims(page, lambda name: FOUND)


def test_a_sentence_about_vinelm_claims_nothing_outside_of_a_claim():
    page = "VineLM is ahead of it. A router is ahead. `VineLM is ahead`.\n\n| VineLM | is ahead |\n\n- VineLM\n  saves $2."
    assert script.unheld(page) == ["VineLM is ahead of it.", "VineLM saves $2."]
    held = "VineLM is <!-- claim: f.json | /x | ahead -->ahead of<!-- end of claim --> it, and nothing else."
    assert script.unheld(held) == []
