"""docs/fields.md names every field of a catalog, a workflow and an objective, and nothing else in its tables of these."""

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

from vinelm import Loop, Objective, Speculation, Stage, Template, Workflow
from vinelm.backends.limits.rate_limits import RateLimits
from vinelm.backends.remote.retry import SETTINGS
from vinelm.catalog import Model, Price

PAGE = (Path(__file__).parents[2] / "docs" / "fields.md").read_text(encoding="utf-8")
SECTIONS = dict(part.split("\n", 1) for part in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:])
CATALOG, WORKFLOW, OBJECTIVE = (SECTIONS[name] for name in ("Catalog", "Workflow", "Objective"))
SETTINGS_OF_ALL = {"stream", "batches", "limits", "send_priority"}


def named(text):
    return set(re.findall(r"\w+", " ".join(re.findall(r"`[^`]+`", text))))


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (CATALOG, {"model" if name == "model_id" else name for name in Model.model_fields}),
        (CATALOG, set(Price.model_fields) | set(RateLimits.model_fields) | set(SETTINGS) | SETTINGS_OF_ALL),
        (WORKFLOW, set(inspect.signature(Workflow).parameters)),
        (WORKFLOW, {field.name for one in (Stage, Loop) for field in dataclasses.fields(one)} - {"stages", "name"}),
        (WORKFLOW, {field.name for field in dataclasses.fields(Template)} - {"steps", "kinds"}),
        (OBJECTIVE, set(inspect.signature(Objective).parameters) | set(inspect.signature(Speculation).parameters)),
    ],
)
def test_every_field_is_named(text, fields):
    assert fields - named(text) == set()


def test_the_table_of_an_objective_has_no_other_field():
    rows = re.findall(r"^\| `(\w+)`", OBJECTIVE, re.MULTILINE)
    assert set(rows) <= set(inspect.signature(Objective).parameters)
