"""Coverage of templates that branch: exact at the end, a fair estimate before, and an upper bound that is never too low."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.toys.branching import branching, cost_of, reachable

from vinelm.profiler import CascadeSampler, ProfileLimits, coverage_of, forecast_profile
from vinelm.profiler.scheduling.admission import CoverageUpperBound
from vinelm.profiler.scheduling.coverage import Coverage
from vinelm.profiler.scheduling.request_paths import ActivePath
from vinelm.requests.protocols import RequestPath
from vinelm.rows.observation import Observation
from vinelm.template import END, Branch, Loop, Stage, Template

MODELS = ("m0", "m1", "m2")
ROUTED = branching(n_models=2).template
SEVERAL = Loop((Stage("b", ("m0", "m1")),), 2, early_exit=True)
OPEN = Template((Branch({"a": (Stage("a", ("m0", "m1")),), "b": (SEVERAL, Stage("c", MODELS))}),))


def random_rows(template, rng, n_requests, *, is_free=False, stages=(), request_id=None, prefix=(), skew=0.5):
    """Every reached cell of requests that end, and go on to each stage, at random; parents before children."""
    if request_id is None:
        for number in range(n_requests):
            yield from random_rows(template, rng, 1, is_free=is_free, request_id=f"q{number}", skew=skew)
        return
    arms = template.arms_after(stages)
    if not arms:
        return
    stage = arms[0] if stages == () and rng.random() < skew else rng.choice(arms)
    yield from rows_below(template, rng, request_id, prefix, stages, stage, is_free)


def rows_below(template, rng, request_id, prefix, stages, stage, is_free):
    for model in stage.models:
        after = template.arms_after((*stages, stage.name))
        goes_on = bool(after) and rng.random() < 0.7
        arm = rng.choice(after) if goes_on else None
        cost = 0.0 if is_free else rng.choice([0.0, 1.0, 5.0])
        yield Observation(
            request_id=request_id, prefix=(*prefix, model), stage=stage.name, success=False, stopped=not goes_on,
            arm=None if arm is None else arm.name, cost_usd=cost, latency_s=1.0,
        )  # fmt: skip
        if arm is not None:
            yield from rows_below(template, rng, request_id, (*prefix, model), (*stages, stage.name), arm, is_free)


@pytest.mark.parametrize("template", [ROUTED, OPEN])
def test_it_is_exact_when_everything_is_executed(template):
    rows = list(random_rows(template, random.Random(1), 8))
    account = coverage_of(rows, template, 8)
    assert account.is_complete
    assert (account.fraction, account.interval()) == (1.0, (1.0, 1.0))
    assert account.exhaustive_usd() == pytest.approx(sum(row.cost_usd for row in rows))
    assert sum(account.counts_per_depth) == len(rows)
    assert not coverage_of(rows, template, 9).is_complete
    assert not coverage_of(rows[1:], template, 8).is_complete


@given(
    seed=st.integers(0, 100_000),
    is_routed=st.booleans(),
    share=st.floats(0, 1),
    is_free=st.booleans(),
    skew=st.sampled_from([0.0, 0.9]),
)
def test_no_outcome_and_no_subset_goes_beyond_the_bound(seed, is_routed, share, is_free, skew):
    """Run a part; foresee some of the rest without knowing its stages; run any of those in order: always below."""
    rng, template = random.Random(seed), ROUTED if is_routed else OPEN
    every = list(random_rows(template, rng, 6, is_free=is_free, skew=skew))
    cells = {(row.request_id, row.prefix): row for row in every}
    account, done = Coverage(template, 6), set()
    for row in every[: int(share * len(every))]:
        account.add(row)
        done.add((row.request_id, row.prefix))
    bound, ahead = CoverageUpperBound(account), []
    for row in every:
        cell, parent = (row.request_id, row.prefix), (row.request_id, row.prefix[:-1])
        if cell in done or rng.random() < 0.5 or not (row.depth == 1 or parent in done or parent in ahead):
            continue
        ahead.append(cell)
        before = cells.get(parent)
        is_open = row.depth == 1 or parent in done
        known = [row.stage] if before is not None and is_open else template.flow.stages_at[row.depth - 1]
        if row.depth == 1 and account.is_known(row.request_id):
            known = [row.stage]
        visits = [(stage, row.model) for stage in known if row.model in template.stage(stage).models]
        bound.add(row.request_id, row.depth, visits, row.cost_usd * rng.uniform(1, 3), is_open=is_open)
    most, left = bound.most, len(every) - len(done)
    for cell in ahead:
        row = cells[cell]
        if rng.random() < 0.7 and (row.depth == 1 or (row.request_id, row.prefix[:-1]) in done):
            account.add(row)
            done.add(cell)
            left -= 1
        if left:  # the last cell of all cannot be before another one
            assert account.fraction <= most + 1e-9


def test_the_estimate_of_the_whole_is_fair():
    """From a twentieth of the cells of many requests, on average, and its interval holds the truth mostly."""
    held, ratios = 0, []
    for seed in range(12):
        rng = random.Random(seed)
        rows = list(random_rows(ROUTED, rng, 150))
        cells, whole = {(row.request_id, row.prefix): row for row in rows}, sum(row.cost_usd for row in rows)
        account, done = Coverage(ROUTED, 150), set()
        for number, path in enumerate(CascadeSampler(ROUTED, [f"q{i}" for i in range(150)], seed).propose(0, ())):
            active = ActivePath(path, number, ROUTED)
            k = 0
            while k < active.resolve(cells, "workflow"):
                k += 1
                if active.cell(k) not in done:
                    done.add(active.cell(k))
                    account.add(cells[active.cell(k)])
            if len(done) > 0.05 * len(cells):
                break
        ratios.append(account.exhaustive_usd() / whole)
        low, high = account.interval()
        assert 0.0 <= low <= account.fraction <= high <= 1.0
        held += low <= account.spent_usd / whole <= high
    assert sum(ratios) / len(ratios) == pytest.approx(1.0, abs=0.08)
    assert held >= 9


@pytest.mark.long
def test_the_forecast_of_a_whole_profile_holds_its_price():
    from kit.toys.profiling import catalog_for

    workflow = branching(n_requests=40)
    rows = [Observation(calls=1, **row) for row in reachable(workflow)]
    whole = sum(cost_of(row.request_id, row.prefix) for row in rows)
    ids = [request.id for request in workflow.requests]
    pilot = [row for row in rows if int(row.request_id[1:]) < 12]
    sampler = CascadeSampler(workflow.template, ids, 0)
    limits = ProfileLimits(coverage=1.0)
    calibrated = forecast_profile(workflow.template, catalog_for(workflow), ids, sampler, limits, rows=pilot)
    assert calibrated.cost_usd.low < whole - sum(row.cost_usd for row in pilot) < calibrated.cost_usd.high
    blind = forecast_profile(workflow.template, catalog_for(workflow), ids, sampler, limits)
    assert blind.cost_usd.low < blind.cost_usd.middle < blind.cost_usd.high
    assert blind.cells.low >= 2 * 40


def test_a_path_ends_where_the_stage_does_not_allow_its_model():
    path = ActivePath(RequestPath("q", ("m0", "m2")), 0, OPEN)
    row = Observation(
        request_id="q", prefix=("m0",), stage="b", arm="b", success=False, stopped=False, cost_usd=1.0, latency_s=1.0
    )
    assert path.next_length({}, "workflow") == 1
    assert path.possible(1) == (("a", "m0"), ("b", "m0"))
    assert path.next_length({("q", ("m0",)): row}, "workflow") is None
    other = ActivePath(RequestPath("q", ("m0", {"b": "m1", "c": "m2"})), 0, OPEN)
    assert set(other.possible(2)) == {("b", "m1"), ("c", "m2")}
    assert other.next_length({("q", ("m0",)): row}, "workflow") == 2
    assert other.cell(2) == ("q", ("m0", "m1"))


def test_an_arm_that_only_ends_needs_no_stage():
    template = Template((Stage("router", MODELS), Branch({"go": (Stage("write", MODELS),), "stop": END})))
    assert template.flow.stages_at == ({"router": ("write",)}, {"write": ()})
