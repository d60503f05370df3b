import csv
import datetime
import gzip

import numpy as np
import pytest
from science.exact_outcomes import ExactAnswers, exact_table

from vinelm.adapters.langgraph import GraphAdapter
from vinelm.backends import RecordedBackend, create_backends
from vinelm.backends.offline.presets import simulated_catalog
from vinelm.backends.offline.simulated import SimulatedBackend
from vinelm.backends.resolver import ModelResolver
from vinelm.catalog import Catalog, Model, Price
from vinelm.clock import VirtualClock
from vinelm.errors import CallError, ConfigError, WorkflowError
from vinelm.policies import ForcedPolicy
from vinelm.requests.workflow import Request, Workflow
from vinelm.template import Loop, Stage, Template
from vinelm.workflows.nl2sql import nl2sql, nl2sql_2


@pytest.fixture
def two_models():
    catalog = simulated_catalog()
    return catalog.subset((catalog.models[0].name, catalog.models[-1].name))


def graph_cell(workflow, catalog, backends, request, prefix):
    """What a run of the graph along the prefix shows at its end: success, stopped, cost, latency; None where a call failed."""
    template = Template((Stage("generate"), *([Loop((Stage("repair"),), len(prefix) - 1)] if prefix[1:] else [])))
    template = template.bind(tuple(catalog))
    policy = ForcedPolicy(template, prefix, mode="through", clock=VirtualClock(), request=request)
    control = GraphAdapter(ModelResolver(catalog, backends), template=template)
    app = workflow.build(control).compile()
    try:
        state = app.invoke(workflow.graph_input(request), context=control.context(policy=policy, request=request))
    except CallError:
        return None, policy.invocations
    assert state.keys() == {"question", "db_id", "sql", "status", "error", "columns", "rows", "row_count", "is_truncated"}
    return (workflow.score(request, state), policy.verdicts[len(prefix)]), policy.invocations


@pytest.mark.parametrize("failure_rate", [pytest.param(0.0, marks=pytest.mark.long), 0.15])
def test_every_cell_is_what_a_run_of_the_graph_shows(folder, two_models, failure_rate):
    workflow = nl2sql_2(folder)
    backends = {"simulated": SimulatedBackend(workflow.writer, seed=3, catalog=two_models, failure_rate=failure_rate)}
    table = exact_table(workflow, two_models, backends)
    assert table.trie.n_nodes == 30
    n_failed = 0
    for row, request in enumerate(workflow.requests):
        for node in range(1, len(table.trie)):
            prefix = table.trie.prefix(node)
            shown, invocations = graph_cell(workflow, two_models, backends, request, prefix)
            last = invocations[-1]
            cell = (table.success[row, node], table.stopped[row, node])
            if shown is None:
                n_failed += 1
                assert cell == (False, True)
                if last.prefix != prefix:  # a call above failed
                    assert table.cost_usd[row, node] == table.latency_s[row, node] == 0.0
                    continue
            else:
                assert cell == shown
            assert last.prefix == prefix
            assert table.cost_usd[row, node] == last.cost_usd
            assert table.latency_s[row, node] == pytest.approx(last.latency_s, rel=1e-9)
    assert (n_failed > 0) == (failure_rate > 0)


@pytest.mark.parametrize("rule", ["oracle", "workflow"])
def test_only_reached_cells_are_the_same_cells(folder, two_models, rule):
    workflow = nl2sql(folder)
    backends = create_backends(two_models, workflow=workflow)
    whole = exact_table(workflow, two_models, backends).with_stop(rule)
    part = exact_table(workflow, two_models, backends, only_reached=rule).with_stop(rule)
    assert not whole.reached.all()
    assert np.array_equal(part.reached, whole.reached)
    for name in ("success", "stopped", "cost_usd", "latency_s"):
        assert np.array_equal(getattr(part, name)[whole.reached], getattr(whole, name)[whole.reached])
    assert not part.cost_usd[~whole.reached].any()
    assert not part.success[~whole.reached].any()
    assert part.stopped[~whole.reached].all()
    assert np.array_equal(part.annotate().accuracy, whole.annotate().accuracy)
    assert np.array_equal(part.annotate().path_cost_usd, whole.annotate().path_cost_usd)


def test_either_may_be_read_under_both_rules(folder, two_models):
    workflow = nl2sql(folder)
    backends = create_backends(two_models, workflow=workflow)
    whole = exact_table(workflow, two_models, backends)
    part = exact_table(workflow, two_models, backends, only_reached="either")
    for rule in ("oracle", "workflow"):
        every, some = whole.with_stop(rule), part.with_stop(rule)
        assert np.array_equal(some.reached, every.reached)
        for name in ("success", "stopped", "cost_usd", "latency_s"):
            assert np.array_equal(getattr(some, name)[every.reached], getattr(every, name)[every.reached])


def test_requests_are_chosen_and_progress_is_told(folder, two_models):
    workflow = nl2sql(folder)
    backends = create_backends(two_models, workflow=workflow)
    told = []
    whole = exact_table(workflow, two_models, backends)
    table = exact_table(workflow, two_models, backends, workflow.requests[2:], progress=lambda *done: told.append(done))
    assert table.request_ids == ("q3", "q4")
    assert told == [(1, 2), (2, 2)]
    assert np.array_equal(table.success, whole.success[2:])
    assert np.array_equal(table.cost_usd, whole.cost_usd[2:])
    assert table.template.stop == "workflow"
    assert not table.stopped[:, 0].any()


def test_backends_that_spend_money_are_refused(folder, catalog):
    class Dear:
        is_simulated = False
        is_virtual_time = False

    with pytest.raises(ConfigError, match="model 'm0': test calls cost money"):
        exact_table(nl2sql(folder), catalog, {"test": Dear()})


def test_other_workflows_are_refused(catalog):
    other = Workflow(
        name="other",
        template=Template((Stage("a"),)),
        build=lambda vine: None,
        requests=[Request("1", {})],
        score=lambda request, state: True,
    )
    with pytest.raises(WorkflowError, match="'other' is not an NL2SQL workflow"):
        exact_table(other, catalog, {})


def test_the_table_of_recorded_systems_holds_their_real_verdicts(real_data):
    systems = ("gpt-4__dail_sql", "codes-1b__sft")
    free = Price(input=0, output=0, source="a test", as_of=datetime.date(2026, 1, 1))
    catalog = Catalog(Model(name=s, provider="recorded", model_id=s, engine="table", price=free) for s in systems)
    outcomes = real_data / "outcomes" / "spider_sql.csv.gz"
    workflow = nl2sql(real_data / "nl2sql")
    table = exact_table(workflow, catalog, {"recorded": RecordedBackend(outcomes)}, only_reached="workflow")
    with gzip.open(outcomes, "rt", encoding="utf-8", newline="") as lines:
        verdicts = {(row["question_id"], row["model"]): row for row in csv.DictReader(lines) if row["model"] in systems}
    for node in range(1, len(table.trie)):
        rows = [verdicts[request_id, table.trie.prefix(node)[-1]] for request_id in table.request_ids]
        right = np.array([row["correct"] == "1" for row in rows])
        stopped = np.array([row["exec_status"] == "ok" and int(row["result_rows"]) > 0 for row in rows])
        reached = table.reached[:, node]
        assert np.array_equal(table.success[reached, node], right[reached])
        assert np.array_equal(table.stopped[reached, node], stopped[reached])
    assert table.reached[:, 1].all()
    assert 0 < table.reached[:, 2].sum() < len(table.request_ids)


def test_answers_on_demand_are_those_of_the_table_and_show_what_the_workflow_declares(folder, two_models):
    workflow = nl2sql(folder)
    backends = create_backends(two_models, workflow=workflow, seed=0)
    table = exact_table(workflow, two_models, backends)
    answers = ExactAnswers(workflow, two_models, backends)
    for row, request in enumerate(workflow.requests):
        for node in reversed(range(1, len(table.trie))):
            shown = answers(request, table.trie.prefix(node))
            assert shown.success == table.success[row, node]
            assert shown.passed == table.stopped[row, node]
            assert (shown.cost_usd, shown.latency_s) == (table.cost_usd[row, node], table.latency_s[row, node])
            assert (shown.signal == "rows") == shown.passed
            assert set(shown.answer) == set(workflow.answer)
