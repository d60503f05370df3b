"""What a change of model costs, by edge."""

import math
from dataclasses import replace
from datetime import date

import numpy as np
import pytest
from kit.catalogs import make_catalog
from kit.templates import make_template

from vinelm import AnnotatedTrie
from vinelm.catalog import Catalog, Model, Price
from vinelm.errors import ConfigError
from vinelm.estimator.prompt_cache import at_call_rate, cached_shares, edge_of, follow_ups
from vinelm.rows.observation import Observation
from vinelm.trie.trie import Trie


def catalog_on_engines(*engines: str, model_ids: tuple[str, ...] = ("x", "y", "z")) -> Catalog:
    plain = make_catalog(len(engines))
    pairs = zip(plain.models, engines, model_ids, strict=False)
    return Catalog([model.model_copy(update={"engine": engine, "model_id": name}) for model, engine, name in pairs])


def test_a_cache_belongs_to_a_model_on_an_engine():
    a, b, c = catalog = catalog_on_engines("gpu", "gpu", "other", model_ids=("x", "y", "x"))
    assert edge_of((a,), catalog) == "first"
    assert [edge_of((a, then), catalog) for then in (a, b, c)] == ["kept", "switched", "switched"]
    same = catalog_on_engines("gpu", "gpu", model_ids=("x", "x"))  # two settings of one model
    assert edge_of(tuple(same), same) == "kept"


def test_shares_are_of_tokens_and_of_rows_that_say_them():
    catalog = catalog_on_engines("gpu", "gpu")
    a, b = catalog

    def row(*prefix: str, tokens_in: int | None, cached: int | None) -> Observation:
        known = {"request_id": "q", "stage": "s", "success": None, "stopped": None, "cost_usd": 0.0, "latency_s": 0.0}
        return Observation(prefix=prefix, tokens_in=tokens_in, tokens_cached=cached, **known)

    rows = [
        row(a, tokens_in=100, cached=0),
        row(a, a, tokens_in=100, cached=90),
        row(b, a, a, tokens_in=300, cached=0),
        row(b, a, tokens_in=50, cached=5),
        row(a, a, a, tokens_in=100, cached=None),
        row(b, tokens_in=None, cached=7),
    ]
    assert cached_shares(rows, catalog) == {a: {"first": 0.0, "kept": 90 / 400, "switched": 0.1}}


def test_follow_ups_compare_within_a_depth():
    catalog, template = catalog_on_engines("gpu", "gpu"), make_template(2, 3)
    trie = Trie.from_template(template)
    same = np.array([trie.depth[u] > 1 and trie.model[u] == trie.model[trie.parent[u]] for u in range(len(trie))])
    cost = np.where(same, 1.0, 2.0) * trie.depth * (1 + trie.model)  # later turns are dearer for everybody
    zeros = np.zeros(len(trie))
    annotated = AnnotatedTrie(trie, template, catalog, zeros, zeros, zeros, cost, zeros, 3 * cost, zeros)
    a, b = catalog
    expected = {"switched_cost_usd": 5.0, "kept_cost_usd": 2.5, "switched_latency_s": 15.0, "kept_latency_s": 7.5}
    found = {row.pop("model"): row for row in follow_ups(annotated)}
    assert found == {a: expected, b: {name: 2 * value for name, value in expected.items()}}
    one_cache = replace(annotated, catalog=catalog_on_engines("gpu", "gpu", model_ids=("x", "x")))
    assert follow_ups(one_cache) == []


# -- hits that other requests made possible ------------------------------------------------------------------------


PRICE = Price(input=1.0, output=0.0, cached=0.1, source="made up", as_of=date(2026, 1, 1))
A, B = "a", "b"
PER_TOKEN = 1e-6


def two_models(**price: object) -> Catalog:
    own = Price.model_validate({**PRICE.model_dump(), **price})
    return Catalog([Model(name=name, provider="test", model_id=name, engine="gpu", price=own) for name in (A, B)])


def asked(request: str, prefix: str, hit: int | None, *, tokens: int = 2500, stage: str | None = None, **more: object):
    """A row as it was charged without a price for writing."""
    cost = (tokens - 0.9 * (hit or 0)) * PER_TOKEN
    return Observation(
        request_id=request, prefix=tuple(prefix), stage=stage or ("plan", "write")[min(len(prefix), 2) - 1], success=True,
        stopped=False, cost_usd=cost, latency_s=1.0, tokens_in=tokens, tokens_out=0, tokens_cached=hit, **more,
    )  # fmt: skip


def dollars(rows, rate=0.0, catalog=None, annotated=None):
    """Each row's dollars in tokens at the full price."""
    priced, _ = at_call_rate(rows, catalog or two_models(), rate, annotated)
    return [round(row.cost_usd / PER_TOKEN, 6) for row in priced]


def test_what_a_request_sent_itself_stays_warm():
    rows = [asked("q", "a", 0), asked("q", "aa", 2304), asked("q", "aaa", 2432, tokens=2600)]
    assert at_call_rate(rows, two_models(), 6.0) == (rows, {})
    with_others = [asked("p", "a", 1920), *rows]
    assert dollars(with_others)[2:] == [pytest.approx(2500 - 0.9 * 2304), pytest.approx(2600 - 0.9 * 2432)]


@pytest.mark.parametrize(("rate", "ttl_s"), [(0.0, 300.0), (6.0, 300.0), (6.0, 3600.0), (1e6, 300.0)])
def test_what_others_sent_is_as_warm_as_their_rate_keeps_it(rate, ttl_s):
    rows = [asked("p", "a", 0), asked("q", "a", 1920), asked("r", "a", 1920)]
    warm = 1.0 - math.exp(-rate * ttl_s / 3600.0)
    expected = pytest.approx([2500 - 0.9 * 1920 * warm] * 3)  # the cold row of the first call, too
    assert dollars(rows, rate, two_models(cache_ttl_s=ttl_s)) == expected
    _, facts = at_call_rate(rows, two_models(), rate)
    assert facts == {"prompt_cache": {"calls_per_hour": rate, "shared_tokens": {"plan": {A: 1920}}}}


def test_what_is_read_was_written_where_that_has_a_price():
    """Cold costs the dearer of both: some lists have a price of storage that is below the input's."""
    rows = [asked("p", "a", 1920)]
    assert dollars(rows, catalog=two_models(cache_write=1.25)) == [pytest.approx(2500 + 0.25 * 1920)]
    assert dollars(rows, catalog=two_models(cache_write=0.2)) == [2500.0]


def test_what_another_branch_of_the_request_left_is_cold_at_any_rate():
    rows = [asked("p", "b", None), asked("p", "ba", 1920), asked("p", "c", None), asked("p", "ca", 2432)]
    catalog = Catalog([*two_models().models, Model(name="c", provider="test", model_id="c", engine="gpu", price=PRICE)])
    assert dollars(rows, 1e6, catalog)[1::2] == [pytest.approx(2500 - 0.9 * 1920)] * 2


def test_a_prompt_that_begins_otherwise_than_the_stage_before_is_not_warmed_by_it():
    rows = [row for q in "pqr" for row in (asked(q, "a", 0), asked(q, "aa", 0 if q == "p" else 1920))]
    assert dollars(rows) == [2500.0] * 6


def test_a_prompt_that_goes_on_from_the_stage_before_is():
    rows = [row for q in "pqr" for row in (asked(q, "a", 1920), asked(q, "aa", 2432, tokens=2600))]
    assert dollars(rows) == [pytest.approx(found) for _ in "pqr" for found in (2500.0, 2600 - 0.9 * 2432)]


def test_of_several_calls_only_the_first_meets_what_others_left():
    assert dollars([asked("p", "a", 6000, tokens=9000, calls=3)]) == [pytest.approx(9000 - 0.9 * 4000)]


def test_what_is_not_known_is_left_as_it_is():
    rows = [asked("p", "a", 1920), asked("q", "a", None), asked("r", "z", 1920)]
    assert at_call_rate(rows, two_models(), 1.0)[0][1:] == rows[1:]


def test_the_rate_is_that_of_the_requests_that_reach_the_invocation():
    catalog, template = two_models(), make_template(2, 2)
    trie = Trie.from_template(template.bind((A, B)))
    zeros, quarter = np.zeros(len(trie)), np.full(len(trie), 0.75)
    annotated = AnnotatedTrie(trie, template.bind((A, B)), catalog, zeros, quarter, zeros, zeros, zeros, zeros, zeros)
    stages = [stage.name for stage in annotated.template.stages]
    rows = [asked("p", "a", 1920, stage=stages[0]), asked("p", "ab", 1920, stage=stages[-1])]
    warm = [1.0 - math.exp(-rate / 12.0) for rate in (12.0, 3.0)]
    assert dollars(rows, 12.0, catalog, annotated) == [pytest.approx(2500 - 0.9 * 1920 * share) for share in warm]


@pytest.mark.parametrize("rate", [-1.0, math.nan, math.inf])
def test_a_rate_that_is_none_is_refused(rate):
    with pytest.raises(ConfigError, match="requests of the service per hour, a number >= 0"):
        at_call_rate([], two_models(), rate)
