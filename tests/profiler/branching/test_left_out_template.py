"""A workflow without a template: it is read from the graph where a profile begins; a given one is compared with the graph."""

from dataclasses import replace

import pytest
from kit.toys.branching import BranchingBackend, branching, graded, new_store
from kit.toys.profiling import catalog_for

from vinelm import VineLM
from vinelm.adapters.langgraph.exits import resolved
from vinelm.profiler import ProfileSettings, check_workflow, profile
from vinelm.template import Branch, Loop, Stage, Template

GIVEN = branching()
CATALOG = catalog_for(GIVEN)


def bounded(vine):
    """The same graph with a route that bounds its loop: the first search is not through it."""
    graph = GIVEN.build(vine)
    graph.branches["grade"].clear()
    graph.add_conditional_edges("grade", vine.route(graded, to=["search", "write"], end="write", times={"search": 1}))
    return graph


def left_out(**changes):
    return branching(**({"template": None, "build": bounded} | changes))


def rows_of(path, workflow):
    whole = resolved(workflow, VineLM(CATALOG, {"test": BranchingBackend()}))
    with new_store(path, replace(whole, template=whole.template.bind(tuple(CATALOG)))) as store:
        profile(workflow, CATALOG, {"test": BranchingBackend()}, store, ProfileSettings(sampler="exhaustive"))
        return store.observations()


def test_its_profile_has_the_rows_of_the_one_with_a_template(tmp_path):
    assert rows_of(tmp_path / "a.db", left_out()) == rows_of(tmp_path / "b.db", GIVEN)


def items(workflow):
    report = check_workflow(workflow, CATALOG)
    return report, [item for item in report.items if item.name in ("template", "arms")]


def test_the_check_prints_it_as_code():
    report, (item,) = items(left_out())
    assert item.is_ok
    names: dict = {}
    exec(report.template_code, names)
    assert names["template"] == resolved(left_out(), VineLM(CATALOG)).template
    assert [type(step).__name__ for step in names["template"].steps] == ["Stage", "Branch", "Stage"]
    assert max(map(len, report.template_code.splitlines())) <= 80


def test_a_given_template_that_fits_has_no_arms_to_mend():
    report, found = items(GIVEN)
    assert report.template_code is None
    assert [item.name for item in found] == ["template"]


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (
            (
                Stage("router"),
                Branch({"search": (Loop((Stage("search"), Stage("grade")), 2),), "stop": "__end__"}),
                Stage("write"),
            ),
            ["the graph goes from 'router' to 'write'"],
        ),
        (
            (
                Stage("router"),
                Branch({"search": (Stage("search"), Branch({"grade": (Stage("grade"),), "x": ()})), "write": ()}),
                Stage("write"),
            ),
            ["the graph goes from 'grade' to 'search'", "the template goes from 'search' to 'write'"],
        ),
    ],
)
def test_each_arm_that_only_one_of_them_has_is_a_line(steps, words):
    _, found = items(branching(template=Template(steps)))
    wrong = [item.detail for item in found if not item.is_ok]
    assert [line.startswith(start) for line, start in zip(wrong, words, strict=True)] == [True] * len(words)
    assert not any("\n" in line for line in wrong)


def test_what_the_graph_does_not_say_is_one_failed_item():
    def build(vine):
        graph = GIVEN.build(vine)
        graph.branches["router"].clear()
        graph.add_conditional_edges("router", lambda state: state["next"])  # its code names no node
        return graph

    report, (item,) = items(left_out(build=build))
    assert not item.is_ok
    assert "the edge behind 'router' does not say where it leads" in item.detail
    assert report.template_code is None
