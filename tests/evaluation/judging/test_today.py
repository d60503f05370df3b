"""Plans against what runs today, from rows: nothing is concluded of models that no row shows."""

import pytest
from kit.catalogs import make_catalog

from vinelm.evaluation.judging.today import against_today
from vinelm.rows.observation import Observation
from vinelm.template import Loop, Stage, Template

NAMES = [f"q{i:03d}" for i in range(60)]


def rows(model, right, cost_usd):
    return [
        Observation(
            request_id=name, prefix=(model,), stage="write", success=float(number % 100 < right), stopped=True,
            cost_usd=cost_usd, latency_s=1.0, calls=1,
        ) for number, name in enumerate(NAMES)
    ]  # fmt: skip


@pytest.mark.parametrize("template", [Template((Stage("write"),)), Template((Stage("write"), Loop((Stage("fix"),), times=1)))])
def test_rows_of_today_alone_settle_nothing_while_a_cheaper_model_was_not_asked(template):
    catalog = make_catalog(2)
    assert catalog["m0"].price.cost_usd(1000, 250) < catalog["m1"].price.cost_usd(1000, 250)
    bound = template.bind(tuple(catalog)).with_defaults({stage.name: "m1" for stage in template.stages})
    alone = against_today(NAMES, rows("m1", 90, 0.01), bound, catalog)
    assert alone.cheaper == ("m0",)
    assert not alone.is_settled()
    advice = alone.advice()
    assert advice.advice == "keep"
    assert "the plan is what runs today" not in advice.sentence


def test_it_says_which_models_were_compared():
    catalog = make_catalog(2)
    bound = Template((Stage("write"),)).bind(tuple(catalog)).with_defaults({"write": "m1"})
    both = against_today(NAMES, [*rows("m1", 100, 0.01), *rows("m0", 20, 0.001)], bound, catalog)
    assert both.uncompared == ()
    assert any("m0" in plan.models for plan in both.plans)
    assert "Compared with it: plans of m0." in both.recommend(both.cost_usd).sentence
    assert both.is_settled()
