"""A graph with ``vine.finish`` is profiled like one that ends at once: the node has no effect there, and no fingerprint."""

from dataclasses import replace
from operator import attrgetter

import pytest
from kit.toys.profiling import State, ToyBackend, catalog_for, check, finished, generate, new_store, repair, toy
from kit.toys.profiling import build as plain_build
from langgraph.graph import END, START, StateGraph

from vinelm.adapters.langgraph.exits import resolved
from vinelm.profiler import ProfileSettings, profile
from vinelm.profiler.execution.fingerprint import fingerprint
from vinelm.profiler.execution.unit_adapter import UnitAdapter
from vinelm.requests.workflow import Workflow


def build(vine):
    graph = StateGraph(State)
    graph.add_node("generate", vine.stage("generate", generate))
    graph.add_node("repair", vine.stage("repair", repair))
    graph.add_node("check", check)
    graph.add_node("finish", vine.finish)
    graph.add_edge(START, "generate")
    graph.add_edge("generate", "check")
    graph.add_edge("repair", "check")
    graph.add_conditional_edges("check", vine.route(finished, again="repair", end="finish"))
    graph.add_edge("finish", END)
    return graph


def rows(path, workflow, **settings):
    with new_store(path, workflow) as store:
        profile(workflow, catalog_for(workflow), {"test": ToyBackend()}, store, ProfileSettings(**settings))
        of = attrgetter("prefix", "success", "stopped", "cost_usd", "latency_s")
        return {(row.request_id, *of(row)) for row in store.observations()}


@pytest.mark.parametrize(("stop", "replay"), [("workflow", False), ("workflow", True), ("oracle", False)])
def test_its_rows_are_those_of_the_graph_without_it(tmp_path, stop, replay):
    plain = rows(tmp_path / "plain.db", toy(2, stop=stop))
    assert len(plain) > 5
    assert rows(tmp_path / "finish.db", toy(2, stop=stop, build=build, replay=replay)) == plain


def test_the_template_reads_the_same():
    read = {}
    for form in (build, plain_build):
        found = toy(build=form)
        unread = replace(found, template=Workflow.__dataclass_fields__["template"].default)
        read[form] = resolved(unread, UnitAdapter(catalog_for(found), {"test": ToyBackend()}, template=None)).template
    assert read[build] == read[plain_build]


def test_the_node_is_no_part_of_the_fingerprint():
    workflow = toy(build=build)
    parts = fingerprint(workflow, catalog_for(workflow), {"test": ToyBackend()})
    assert "node check" in parts
    assert "node finish" not in parts


def test_rows_that_were_bought_without_the_node_hold_with_it():
    found = [
        fingerprint(made, catalog_for(made), {"test": ToyBackend()}) for made in (toy(build=build), toy(build=plain_build))
    ]
    assert found[0] == found[1]
