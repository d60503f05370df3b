"""A workflow's graph is checked before anything is spent on it."""

import pytest
from kit.apps.echo import App, Typed, control, path_of, thread
from kit.templates import make_template
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.store.memory import InMemoryStore
from langgraph.types import CachePolicy

from vinelm.adapters.langgraph import build_graph
from vinelm.adapters.langgraph.build import refuse_unsupported
from vinelm.errors import WorkflowError
from vinelm.profiler.execution.fingerprint import fingerprint
from vinelm.requests.workflow import Request, Workflow
from vinelm.template import Stage, Template


def workflow(build, template=None):
    return Workflow(
        name="w",
        template=template or make_template(3, 3),
        build=build,
        requests=[Request("q1", {"q": "?"})],
        score=lambda request, state: True,
    )


@pytest.mark.parametrize("compiled", [False, True])
def test_a_builder_or_a_compiled_app_gets_the_checkpointer(compiled):
    def build(vine):
        graph = App().build(vine)
        return graph.compile() if compiled else graph

    saver = InMemorySaver()
    app = build_graph(workflow(build), control(), saver)
    assert app.checkpointer is saver
    assert app.invoke({"q": "?"}, thread())["a"] == "m0;m0;m0;"
    assert path_of(app, thread()) == ["m0", "m0", "m0"]


def test_a_compiled_app_keeps_its_own_settings_but_breakpoints():
    store, own, saver = InMemoryStore(), InMemorySaver(), InMemorySaver()

    def build(vine):
        return App().build(vine).compile(checkpointer=own, store=store, interrupt_before=["execute"], name="mine")

    kept = build_graph(workflow(build), control())
    replaced = build_graph(workflow(build), control(), saver)
    assert kept.checkpointer is own
    assert replaced.checkpointer is saver
    for app in (kept, replaced):
        assert (app.store, app.name) == (store, "mine")
        app.invoke({"q": "?"}, thread())
        assert app.get_state(thread()).next == ()  # nobody would invoke a profiled request again
    assert replaced.get_input_jsonschema() == kept.get_input_jsonschema()


def test_without_a_checkpointer_it_runs_as_well():
    assert build_graph(workflow(App().build), control()).invoke({"q": "?"})["a"] == "m0;m0;m0;"


def added(**settings):
    """A graph of one stage, added with these settings."""

    def build(vine):
        graph = StateGraph(Typed)
        graph.add_node("generate", vine.stage("generate", lambda state, model: {}, state=Typed), **settings)
        graph.add_edge(START, "generate")
        return graph.compile(cache=InMemoryCache())

    return build


def cached_by_default(vine):
    graph = StateGraph(Typed)
    graph.set_node_defaults(cache_policy=CachePolicy())
    graph.add_node("generate", vine.stage("generate", lambda state, model: {}, state=Typed))
    graph.add_edge(START, "generate")
    return graph


def side_by_side(vine):
    graph = StateGraph(Typed)
    for name in ("generate", "repair"):
        graph.add_node(name, vine.stage(name, lambda state, model: {}, state=Typed))
        graph.add_edge(START, name)
    return graph


def unwrapped(vine):
    graph = StateGraph(Typed)
    graph.add_node("generate", lambda state: {})
    graph.add_edge(START, "generate")
    return graph


def misnamed(vine):
    graph = StateGraph(Typed)
    graph.add_node("write", vine.stage("generate", lambda state, model: {}, state=Typed))
    graph.add_edge(START, "write")
    return graph


def superfluous(vine):
    graph = added()(vine).builder
    graph.add_node("extra", vine.stage("extra", lambda state, model: {}, state=Typed))
    graph.add_edge("generate", "extra")
    return graph


ONE = Template((Stage("generate"),))
PAIR = Template((Stage("generate"), Stage("repair")))


@pytest.mark.parametrize(
    ("build", "template", "words"),
    [
        (added(cache_policy=CachePolicy()), ONE, "stage 'generate' has a cache_policy: .* so remove it"),
        (cached_by_default, ONE, "stage 'generate' has a cache_policy"),
        (added(input_schema=Typed), ONE, "stage 'generate' was added with input_schema=, which hides its path"),
        (side_by_side, PAIR, "stages 'generate' and 'repair' both follow '__start__' in one superstep"),
        (unwrapped, ONE, r"the node 'generate' is not wrapped: add_node\('generate', vine.stage\('generate', ...\)\)"),
        (misnamed, ONE, "the node 'write' runs vine.stage\\('generate', ...\\): give both one name"),
        (superfluous, ONE, r"wraps a stage 'extra', which the template lacks: add Stage\('extra'\) to it"),
        (added(), PAIR, "a stage 'repair', which the graph lacks: it has the nodes generate"),
        (lambda vine: None, ONE, "returned NoneType: return the StateGraph"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_refusals(build, template, words):
    with pytest.raises(WorkflowError, match=words) as caught:
        build_graph(workflow(build, template), control(template=False))
    assert "\n" not in str(caught.value)


def test_what_is_served_can_be_checked_without_a_workflow():
    graph = App().build(control()).compile()
    refuse_unsupported(graph, ["generate", "repair"])


def test_a_stage_whose_channel_is_missing_says_so():
    app = added(input_schema=Typed)(control())
    with pytest.raises(WorkflowError, match="the graph lacks VineLM's channel: leave input_schema= out"):
        app.invoke({"q": "?"})


@pytest.mark.parametrize("way", [build_graph, lambda flow, vine: fingerprint(flow, vine.adapter.models.catalog, {})])
def test_a_build_that_exits_is_one_line_and_no_success(way):
    """The command would end there, with exit code 0 and nothing done."""

    def build(vine):
        raise SystemExit(0)

    with pytest.raises(WorkflowError, match=r"build\(vine\) calls sys.exit\(0\)"):
        way(workflow(build), control())
