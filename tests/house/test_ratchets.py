"""The figures of the house do not get worse: each has a limit in `ratchets.json`, which only comes down.

A limit is raised by hand, in one line, with a decision note that says which new capability it buys.
"""

import functools
import sys

import pytest
from house_parts import measured, ratchets  # the folder of house_script is searched
from kit.house import HOUSE, ROOT, house_script

LIMITS = ratchets.limits(ROOT / house_script.RATCHETS)
SOURCE = functools.cache(lambda: measured.of_source(HOUSE, ("vinelm", *house_script.PARTS)))
SCENARIOS = ("served_stage", "served_next_stage", "profiled_unit", "estimate", "plan")


def require_within(found):
    problems = list(ratchets.problems(found, {name: LIMITS[name] for name in found if name in LIMITS}))
    assert not problems, "\n".join(["", *problems])


def test_the_source_is_within_its_limits():
    require_within(SOURCE())


def test_commands_and_options_are_within_their_limits():
    require_within(measured.of_commands(sys.executable))


def test_what_a_request_passes_is_within_its_limits():
    passed = house_script.passes(ROOT, sys.executable)
    assert sorted(passed) == sorted(SCENARIOS)
    require_within(measured.of_passes(passed))


def test_every_limit_is_of_a_figure():
    of_scenarios = {f"{name}_{what}" for name in SCENARIOS for what in ("files", "functions")}
    found = {*SOURCE(), "commands", "options", *of_scenarios}
    assert set(LIMITS) == found


@pytest.mark.parametrize(
    ("name", "limit", "value", "said"),
    [
        ("files", 700, 701, "files is 701, at most 700 is allowed:\n    a.py"),
        ("files", 700, 700, None),
        ("files", 700, 690, None),
        ("files", 700, 680, "files is 680, better than its limit of 700: python scripts/house.py --ratchet"),
        ("lonely_protocols", 6, 5, "better than its limit of 6"),
        ("circles_between_folders", 0, 0, None),
        ("circles_between_folders", 0, 1, "at most 0 is allowed"),
        ("product_lines", 93_500, 93_482, None),
        ("product_lines", 93_500, 93_501, "at most 93500"),
        ("comments_per_100_lines", 0.86, 0.85, "at least 0.86 is allowed"),
        ("comments_per_100_lines", 0.86, 1.2, "better than its limit"),
    ],
)
def test_a_value_beyond_its_limit_or_well_within_it_is_named(name, limit, value, said):
    problems = list(ratchets.problems({name: ratchets.Figure(value, ["a.py"])}, {name: limit}))
    assert len(problems) == (said is not None)
    assert said is None or said in problems[0]


def test_limits_are_tightened_and_never_loosened(tmp_path):
    known = {"files": 700, "options": 220, "comments_per_100_lines": 0.86, "product_lines": 93_500}
    values = {"files": 650, "options": 225, "comments_per_100_lines": 1.5, "product_lines": 90_001, "commands": 27}
    found = {name: ratchets.Figure(value) for name, value in values.items()}
    new = ratchets.tightened(found, known)
    assert new == {"files": 650, "options": 220, "comments_per_100_lines": 1.5, "product_lines": 90_250, "commands": 27}
    ratchets.write(tmp_path / "limits.json", new)
    assert ratchets.limits(tmp_path / "limits.json") == new
    assert len((tmp_path / "limits.json").read_text().splitlines()) == len(new) + 2, "one a line"
