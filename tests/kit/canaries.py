"""An application under a canary: a stage that is run twice, whose calls cost what they are told to."""

from dataclasses import replace

from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict

from kit.tables import random_table
from vinelm import VineLM
from vinelm.errors import CallError
from vinelm.objective import Objective
from vinelm.rows.observation import Usage
from vinelm.trie.verdict import Verdict

BEST = Objective(maximize="accuracy")
TABLE = random_table(3, n_requests=60, n_models=3, depth=3)


def known(annotated, cost_usd=0.03):
    """The trie, which says what runs today and that nothing is proven."""
    names = [stage.name for stage in annotated.template.stages]
    return replace(
        annotated, verdict=Verdict(models=dict.fromkeys(names, "m0"), accuracy=0.5, cost_usd=cost_usd, max_loss=0.01)
    )


TRIE = known(TABLE.annotate())


class State(TypedDict, total=False):
    turns: int
    seen: list


class FixedBackend:
    """Each call costs what ``usd`` says of its path, and fails where that is None."""

    is_simulated, is_virtual_time = True, False

    def __init__(self, usd=lambda path: 0.01):
        self.usd = usd

    def chat_model(self, model, call):
        backend = self

        class Chat:
            name = model.name

            def invoke(self, prompt):
                usd = backend.usd(call.prefix)
                call.on_usage(Usage(model=model.name, cost_usd=usd or 0.0, latency_s=0.0, tokens_in=7, tokens_out=2))
                if usd is None:
                    raise CallError("down", kind="server_error")

        return Chat()


def serving(canary=0.5, *, trie=TRIE, usd=lambda path: 0.01, waits=False, saver=None, **settings):
    vine = VineLM(trie.catalog, {"test": FixedBackend(usd)}, trie=trie, fallback=False, canary=canary, **settings)

    def answer(state: State, model):
        model.invoke("?")
        return {"turns": state.get("turns", 0) + 1, "seen": [*state.get("seen", []), model.name]}

    def person(state: State):
        return {"turns": state["turns"]} if interrupt("go on?") else {}

    graph = StateGraph(State)
    for node in ("generate", "repair"):
        graph.add_node(node, vine.stage(node, answer, default="m0"))
    graph.add_edge(START, "generate")
    follower = "person" if waits else "repair"
    if waits:
        graph.add_node("person", person)
        graph.add_edge("person", "repair")
    for node in ("generate", "repair"):
        edge = vine.route(lambda state: state["turns"] >= 2, again=follower, end=END)
        graph.add_conditional_edges(node, edge)
    return vine, graph.compile(checkpointer=saver)


def asked(vine, app, name, **config):
    return app.invoke({"turns": 0, "seen": []}, config or None, context=vine.context(BEST, request_id=name))
