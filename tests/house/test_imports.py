"""Who may import whom, read from the source: the layers of docs/architecture.md, folder by folder."""

import pytest
from house_kit import HOUSE, house_script

PARTS = ("profiler", "traces", "estimator", "controller", "workflows")
MAY_IMPORT = {
    "core": set(),
    "telemetry": {"core"},
    "backends": {"core"},
    "adapters": {"core", "telemetry", "backends"},
    "traces": {"core"},
    "estimator": {"core"},
    "controller": {"core", "backends"},
    "profiler": {"core", "backends", "adapters", "traces"},
    "workflows": {"core", "backends", "adapters"},
    "api": {"core", "telemetry", "backends", "adapters", "traces", "estimator", "controller", "profiler", "workflows"},
}
MAY_IMPORT["evaluation"] = MAY_IMPORT["examples"] = MAY_IMPORT["scaffold"] = MAY_IMPORT["api"] | {"api"}
MAY_IMPORT["reports"] = MAY_IMPORT["evaluation"] | {"evaluation"}
MAY_IMPORT["demo"] = MAY_IMPORT["reports"] | {"reports"}
MAY_IMPORT["cli"] = MAY_IMPORT["demo"] | {"demo", "scaffold"}
MAY_IMPORT["examples"] = MAY_IMPORT["examples"] | {"front door", "cli"}  # applications of their own: they use what a user does
CONFINED = {
    "sqlalchemy": ("vinelm.traces",),
    "click": ("vinelm.cli",),
    "matplotlib": ("vinelm.reports",),
    "langgraph": ("vinelm.adapters", "vinelm.profiler", "vinelm.workflows", "vinelm.scaffold"),
}


def test_every_room_has_a_rule():
    rooms = {HOUSE.room(name) for name in HOUSE.files} - {"front door"}
    assert rooms == set(MAY_IMPORT)
    assert rooms == {room for rooms in house_script.LEVELS for room in rooms}


@pytest.mark.parametrize("name", sorted(HOUSE.files))
def test_imports_run_one_way(name):
    mine = HOUSE.room(name)
    if mine == "front door":
        return  # hands names on, lazily
    for target in HOUSE.arrows[name]:
        theirs = HOUSE.room(target)
        assert theirs == mine or theirs in MAY_IMPORT[mine], f"{mine} must not import {target}"


def test_there_is_no_circle_of_imports():
    """Not even one that is lazy, or for type checkers only."""
    assert house_script.circles(HOUSE.arrows) == []


def test_no_room_is_crowded():
    found = house_script.figures(HOUSE)
    assert found["folders_over_20_files"] == []
    assert found["files_over_400_lines"] == []
    assert found["functions_over_60_lines"] == []
    assert found["public_names_without_docstring"] == []


@pytest.mark.parametrize("name", sorted(HOUSE.files))
def test_heavy_libraries_stay_in_their_rooms(name):
    for library in house_script.libraries(HOUSE.trees[name]):
        rooms = CONFINED.get(library)
        assert rooms is None or name.startswith(rooms), f"{library} belongs in {', '.join(rooms or ())}"
        assert library not in PARTS, f"import vinelm.{library}, not the bare {library}"


def test_imports_are_absolute():
    assert not [name for name, tree in HOUSE.trees.items() if house_script.has_relative_import(tree)]


def test_a_class_name_has_one_meaning():
    """Within the package; the state types of example graphs are the users' own and may share a name."""
    homes = {}
    for name, tree in HOUSE.trees.items():
        if HOUSE.room(name) != "examples":
            for found in house_script.class_names(tree):
                homes.setdefault(found, []).append(name)
    assert {found: where for found, where in homes.items() if len(where) > 1} == {}
