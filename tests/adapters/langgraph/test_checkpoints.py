"""Nothing secret enters a checkpoint: neither keys nor the run's context, whatever carries them."""

import pytest
from kit.apps.echo import MODES, App, Echo, EchoBackend, control, run, thread
from kit.catalogs import make_catalog
from langgraph.checkpoint.memory import InMemorySaver

from vinelm.adapters.langgraph import GraphAdapter
from vinelm.backends.resolver import ModelResolver
from vinelm.objective import Objective
from vinelm.requests.workflow import Request

CANARY = "sk-canary-4711"


class KeyedBackend(EchoBackend):
    """Its chat models hold a key, as those of real providers do."""

    def chat_model(self, model, call):
        return Echo(name_=model.name, call=call, metadata={"key": CANARY})


@pytest.mark.parametrize("interrupted", [False, True], ids=["whole", "interrupted"])
@pytest.mark.parametrize("mode", MODES)
def test_no_canary_in_any_checkpoint(mode, interrupted):
    catalog = make_catalog(3, options={"user": CANARY})
    vine = GraphAdapter(ModelResolver(catalog, {"test": KeyedBackend()}), template=control().template)
    saver = InMemorySaver()
    graph = App(mode=mode).build(vine).compile(checkpointer=saver)
    context = vine.context(
        Objective(maximize="accuracy", max_latency_s=90.4711), user={"token": CANARY}, request=Request("q1", {"gold": CANARY})
    )
    stop = {"interrupt_before": ["repair"]} if interrupted else {}
    run(graph, mode, {"q": "?"}, thread(), context=context, **stop)
    stored = repr([saver.storage, saver.writes, saver.blobs, list(saver.list(thread()))])
    assert "m0" in stored
    for secret in (CANARY, "90.4711", "tenant", "gold", "Objective", "RunContext"):
        assert secret not in stored


def test_scalars_of_configurable_do_enter_the_metadata_and_ours_are_not_among_them():
    vine, saver = control(), InMemorySaver()
    graph = App().build(vine).compile(checkpointer=saver)
    config = {"configurable": {"thread_id": "t", "visible": 7}}
    graph.invoke({"q": "?"}, config, context=vine.context(Objective(maximize="accuracy")))
    keys = {key for saved in saver.list(thread()) for key in saved.metadata}
    assert "visible" in keys
    assert not {key for key in keys if "vinelm" in key}
