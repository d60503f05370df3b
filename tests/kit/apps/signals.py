"""A graph that declares signals, and a policy that keeps what it is told: for outcomes and earlier answers."""

from typing import Any

from langgraph.graph import END, START, StateGraph

from kit.apps.echo import EchoBackend, Typed, get
from kit.catalogs import make_catalog
from kit.templates import make_template
from vinelm.adapters.langgraph import GraphAdapter
from vinelm.backends.resolver import ModelResolver
from vinelm.clock import VirtualClock
from vinelm.policies import Policy
from vinelm.signals import Signals

BY_ANSWER = Signals(signal=lambda state: f"{len(state['log'])} lines", answer=("a",))


class Watching(Policy):
    """Runs ``models`` in turn and ends after the last; keeps every event in order. ``wanted`` is the class to return."""

    def __init__(self, models, wanted=None, template=None):
        super().__init__(template or make_template(3, 4), clock=VirtualClock())
        self.models, self.wanted = models, wanted
        self.events = []
        self.notes = []

    def next_model(self, stage, prefix):
        self.events.append(("model", len(prefix)))
        return self.models[len(prefix)]

    def should_continue(self, prefix, finished, state, arms=None):
        self.events.append(("continue?", len(prefix), finished))
        return len(prefix) < len(self.models)

    def observed(self, prefix, outcome):
        self.events.append(("observed", len(prefix), *outcome))

    def resumed(self, prefix, costs_usd, stages=()):
        self.events.append(("resumed", len(prefix)))

    def returned(self, prefix):
        self.events.append(("returned?", len(prefix)))
        return self.wanted

    def note_returned(self, prefix, note):
        self.notes.append(note)

    @property
    def outcomes(self):
        return [event[1:] for event in self.events if event[0] == "observed"]


def adapter(signals=BY_ANSWER, backend=None, template=True, **settings) -> GraphAdapter:
    models = ModelResolver(make_catalog(3), {"test": backend or EchoBackend()})
    return GraphAdapter(models, template=make_template(3, 4) if template else None, signals=signals, **settings)


def answering(vine, schema: Any = Typed, mode="sync", *, end="finish", tool=None, passes=None, inside=None, retry=None):
    """generate -> execute -> (repair -> execute)*; each answer is the name of its model, and execute adds a line to ``log``.

    The own check passes answers in ``passes``.
    """

    def write(text):
        if inside:
            inside(text)
        return {"a": text}

    def stage(name):
        def run(state, model):
            return write(model.invoke("?").content)

        async def arun(state, model):
            return write((await model.ainvoke("?")).content)

        return vine.stage(name, run if mode == "sync" else arun, state=schema)

    def execute(state: schema):
        return (tool and tool(state)) or {"log": [get(state, "a")]}

    def finished(state: schema) -> bool:
        return get(state, "a") in (passes or ())

    async def afinished(state: schema) -> bool:
        return finished(state)

    graph = StateGraph(schema)
    graph.add_node("generate", stage("generate"), retry_policy=retry)
    graph.add_node("execute", execute)
    graph.add_node("repair", stage("repair"), retry_policy=retry)
    graph.add_edge(START, "generate")
    graph.add_edge("generate", "execute")
    graph.add_edge("repair", "execute")
    graph.add_conditional_edges("execute", vine.route(finished if mode == "sync" else afinished, again="repair", end=end))
    if end != END:
        graph.add_node(end, vine.finish)
        graph.add_edge(end, END)
    return graph
