"""Who may import whom, read from the source: the layers of docs/architecture.md, folder by folder."""

from house_parts import folders  # the folder of house_script is searched
from kit.house import HOUSE, house_script

PARTS = ("profiler", "traces", "estimator", "controller", "workflows")
MAY_IMPORT = {
    "core": set(),
    "telemetry": {"core"},
    "backends": {"core"},
    "adapters": {"core", "telemetry", "backends"},
    "traces": {"core"},
    "estimator": {"core"},
    "proof": {"core"},
    "controller": {"core", "backends"},
    "profiler": {"core", "backends", "adapters", "traces"},
    "workflows": {"core", "backends", "adapters"},
    "evaluation": {"core", "traces", "estimator", "proof", "controller"},
}
MAY_IMPORT["api"] = set(MAY_IMPORT)
MAY_IMPORT["running"] = MAY_IMPORT["scaffold"] = MAY_IMPORT["api"] | {"api"}
MAY_IMPORT["batches"] = MAY_IMPORT["verdicts"] = MAY_IMPORT["replay"] = MAY_IMPORT["running"] | {"running"}
MAY_IMPORT["reports"] = MAY_IMPORT["batches"] | {"batches", "verdicts", "replay"}
MAY_IMPORT["autopilot"] = MAY_IMPORT["gateway"] = MAY_IMPORT["replay"] | {"replay"}
MAY_IMPORT["demo"] = MAY_IMPORT["reports"] | {"reports"}
MAY_IMPORT["trying"] = MAY_IMPORT["demo"] | {"scaffold"}
MAY_IMPORT["cli"] = MAY_IMPORT["trying"] | {"demo", "gateway", "autopilot", "trying"}
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


def test_imports_run_one_way():
    wrong = []
    for name in sorted(HOUSE.files):
        mine = HOUSE.room(name)
        if mine != "front door":  # which hands names on, lazily
            allowed = MAY_IMPORT[mine] | {mine}
            wrong += [f"{name}: {mine} must not import {t}" for t in sorted(HOUSE.arrows[name]) if HOUSE.room(t) not in allowed]
    assert not wrong, "\n".join(wrong)


def test_there_is_no_circle_of_imports():
    """Not even one that is lazy, or for type checkers only."""
    assert house_script.circles(HOUSE.arrows) == []


def test_no_two_folders_import_each_other():
    folder_of = {name: HOUSE.folder(name) for name in HOUSE.files}
    assert folders.groups(folders.folder_arrows(HOUSE.arrows, folder_of)) == []


def test_every_public_name_has_a_docstring():
    assert house_script.figures(HOUSE)["public_names_without_docstring"] == []


def test_heavy_libraries_stay_in_their_rooms():
    used = [(name, library) for name in sorted(HOUSE.files) for library in sorted(house_script.libraries(HOUSE.nodes[name]))]
    wrong = [
        f"{name}: {library} belongs in {', '.join(CONFINED[library])}"
        for name, library in used
        if library in CONFINED and not name.startswith(CONFINED[library])
    ]
    wrong += [f"{name}: import vinelm.{library}, not the bare {library}" for name, library in used if library in PARTS]
    assert not wrong, "\n".join(wrong)


def test_imports_are_absolute():
    assert not [name for name, nodes in HOUSE.nodes.items() if house_script.has_relative_import(nodes)]


def test_a_class_name_has_one_meaning():
    homes = {}
    for name, nodes in HOUSE.nodes.items():
        for found in house_script.class_names(nodes):
            homes.setdefault(found, []).append(name)
    assert {found: where for found, where in homes.items() if len(where) > 1} == {}
