import pytest

from vinelm.backends import create_backends, simulated_catalog
from vinelm.profiler import ProfileSettings, profile
from vinelm.profiler.execution.fingerprint import store_identity
from vinelm.traces import ObservationStore
from vinelm.trie import Trie
from vinelm.workflows.mathqa import mathqa


@pytest.fixture(scope="module")
def workflow():
    return mathqa()


def test_the_trie_has_the_papers_size(workflow):
    trie = Trie.from_template(workflow.template.bind(tuple(simulated_catalog(workflow.simulated_preset))))
    assert trie.n_nodes == 4 + 16 + 64 + 256 + 1024 + 4096
    assert list(trie.stages) == ["solve"]
    assert workflow.template.stop == "workflow"


def test_labels_never_reach_the_graph(workflow):
    assert all(workflow.graph_input(request).keys() == {"question"} for request in workflow.requests)


def test_it_is_profiled_with_signals_and_classes(workflow, tmp_path):
    catalog = simulated_catalog("paper-math")
    backends = create_backends(catalog, workflow=workflow, seed=0)
    with ObservationStore.create(tmp_path / "s.db", store_identity(workflow, catalog, backends)) as store:
        profile(workflow, catalog, backends, store, ProfileSettings(requests=workflow.requests[:4], budget_calls=40))
        rows = store.observations()
    assert {row.stage for row in rows} == {"solve"}
    assert {row.signal for row in rows} <= {"holds", "differs", "no answer"}
    assert all(row.stopped == (row.signal == "holds") for row in rows)
    assert {row.answer_class for row in rows} >= {0, 1}
    assert all((row.answer_class is None) == (row.signal == "no answer") for row in rows)
    assert max(row.depth for row in rows) >= 2
