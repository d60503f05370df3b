"""A decision in a notebook."""

from dataclasses import replace

from kit.tables import random_table

from vinelm.controller import Planner
from vinelm.objective import Objective
from vinelm.trie import Trie
from vinelm.trie.trie import ARRAYS


def test_the_table_has_the_plan_its_metrics_and_the_slack():
    annotated = random_table(0, n_requests=50, n_models=2, depth=2).annotate()
    decision = Planner(annotated).plan(Objective(maximize="accuracy", max_latency_s=0.0))
    shown = decision._repr_html_()
    assert "generate m" in shown or "up to 2 invocations" in shown
    assert "slack of max_latency_s" in shown
    assert "no: max_latency_s relaxed" in shown


def test_a_model_name_cannot_carry_markup():
    annotated = random_table(0, n_requests=50, n_models=2, depth=2).annotate()
    arrays = {name: getattr(annotated.trie, name) for name in ARRAYS}
    trie = Trie(stages=("<script>", "<b>"), models=annotated.trie.models, **arrays)
    shown = Planner(replace(annotated, trie=trie)).plan(Objective(maximize="accuracy"))._repr_html_()
    assert "<script" not in shown
    assert "<b>" not in shown
