"""What other requests left in a prompt cache, by the rate at which they come."""

import math
from datetime import date

import numpy as np
import pytest

from vinelm import AnnotatedTrie
from vinelm.catalog import Catalog, Model, Price
from vinelm.errors import ConfigError
from vinelm.estimator import make_estimator
from vinelm.estimator.call_rate import CallRate
from vinelm.prompts.shape import shape_of
from vinelm.rows.observation import Observation
from vinelm.template import Loop, Stage, Template
from vinelm.trie.trie import Trie

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
    priced = CallRate(rows, catalog or two_models(), rate).rows(annotated)
    return [round(row.cost_usd / PER_TOKEN, 6) for row in priced]


def test_what_a_request_sent_itself_stays_warm():
    rows = [asked("q", "a", 0), asked("q", "aa", 2304), asked("q", "aaa", 2432, tokens=2600)]
    alone = CallRate(rows, two_models(), 6.0)
    assert (alone.rows(), alone.facts) == (rows, {})
    with_others = [asked("p", "a", 1920), *rows]
    assert dollars(with_others)[2:] == [pytest.approx(2500 - 0.9 * 2304), pytest.approx(2600 - 0.9 * 2432)]


@pytest.mark.parametrize(("rate", "ttl_s"), [(0.0, 300.0), (6.0, 300.0), (6.0, 3600.0), (1e6, 300.0)])
def test_what_others_sent_is_as_warm_as_their_rate_keeps_it(rate, ttl_s):
    rows = [asked("p", "a", 0), asked("q", "a", 1920), asked("r", "a", 1920)]
    warm = 1.0 - math.exp(-rate * ttl_s / 3600.0)
    expected = pytest.approx([2500 - 0.9 * 1920 * warm] * 3)  # the cold row of the first call, too
    assert dollars(rows, rate, two_models(cache_ttl_s=ttl_s)) == expected
    assert CallRate(rows, two_models(), rate).facts == {
        "prompt_cache": {"calls_per_hour": rate, "shared_tokens": {"plan": {A: 1920}}}
    }


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
    assert CallRate(rows, two_models(), 1.0).rows()[1:] == rows[1:]


def test_the_rate_is_that_of_the_requests_that_reach_the_invocation():
    """Of the rows, and of the trie, where a path without rows has the dollars of its own rate."""
    catalog, template = two_models(), Template((Stage("plan", (A, B)), Loop((Stage("write", (A, B)),), 2)))
    trie = Trie.from_template(template)
    zeros, stop = np.zeros(len(trie)), np.full(len(trie), 0.75)
    stop[0] = 0.0
    annotated = AnnotatedTrie(trie, template, catalog, zeros, stop, zeros, zeros, zeros, zeros, zeros)
    rows = [asked("p", "a", 1920), asked("p", "ab", 1920)]
    warm = [1.0 - math.exp(-rate / 12.0) for rate in (12.0, 3.0)]
    assert dollars(rows, 12.0, catalog, annotated) == [pytest.approx(2500 - 0.9 * 1920 * share) for share in warm]
    found = CallRate(rows, catalog, 12.0).applied(annotated)
    cold = {"a": 12.0, "ab": 3.0, "bb": 3.0, "aab": 0.75, "bab": 0.75}  # of plan on b, and write on a, nothing is known
    for prefix in map("".join, (trie.prefix(node) for node in range(1, len(trie)))):
        extra = 0.9 * 1920 * PER_TOKEN * math.exp(-cold[prefix] / 12.0) if prefix in cold else 0.0
        assert found.cost_usd[trie.node(tuple(prefix))] == pytest.approx(extra), prefix


def test_replicas_share_the_rate_and_not_the_cache():
    one = two_models().models[0]
    twice = [one.model_copy(update={"name": f"a{i}", "engine": f"gpu{i}", "group": A}) for i in (1, 2)]
    rows = [asked("p", "a", 1920)]
    assert dollars(rows, 12.0, Catalog(twice)) == [pytest.approx(2500 - 0.9 * 1920 * (1.0 - math.exp(-0.5)))]


@pytest.mark.parametrize("rate", [-1.0, math.nan, math.inf])
def test_a_rate_that_is_none_is_refused(rate):
    with pytest.raises(ConfigError, match="requests of the service per hour, a number >= 0"):
        CallRate([], two_models(), rate)


def test_merged_histories_have_the_mean_of_the_rows_of_a_stage_and_model():
    catalog, template = two_models(), Template((Loop((Stage("ask", (A, B)),), 4, memory=1),))
    trie = Trie.from_template(template)
    assert trie.is_merged
    rows = [asked("p", "a", 1920, stage="ask"), asked("p", "aa", 1920, stage="ask"), asked("q", "a", 1920, stage="ask")]
    found = CallRate(rows, catalog).applied(make_estimator("latent").fit(rows, template, catalog).annotated_)
    warm = make_estimator("latent").fit(rows, template, catalog).annotated_
    on_a = trie.model == trie.models.index(A)
    assert (found.cost_usd - warm.cost_usd)[on_a] == pytest.approx(0.9 * 1920 * PER_TOKEN * 2 / 3)
    assert (found.cost_usd == warm.cost_usd)[~on_a].all()


def shaped(text_by_cell):
    return {(request, tuple(prefix)): [shape_of(parts, b"k")] for (request, prefix), parts in text_by_cell.items()}


def words(name, tokens):
    """So many tokens of text, less the byte that ends a part."""
    return (f"{name} " * tokens)[: 4 * tokens - 1]


def test_shapes_say_what_the_request_itself_had_sent():
    """Writing begins as planning does with 1,000 tokens of all requests, and then with none of its own request's."""
    plan = {q: [words("head", 1000), words(f"plan {q}", 1500)] for q in "pqr"}
    write = {q: [words("head", 1000), words(f"write {q}", 500), words("tail", 1000)] for q in "pqr"}
    rows = [row for q in "pqr" for row in (asked(q, "a", 0 if q == "p" else 1000), asked(q, "aa", 1000))]
    found = CallRate(rows, two_models(), 0.0, shaped({(q, "a" * k): (plan, write)[k - 1][q] for q in "pqr" for k in (1, 2)}))
    cold, warm = 2500, 2500 - 0.9 * 1000
    assert [row.cost_usd / PER_TOKEN for row in found.rows()] == pytest.approx([cold, warm] * 3)  # its own plan warms it
    assert found.facts["prompt_cache"]["shared_tokens"] == {"plan": {A: 1000}}


def test_shapes_tell_a_hit_of_others_after_a_stage_that_sends_something_else():
    """Without shapes all hits after another stage on the same cache count as the request's own, if none is cold."""
    plan = {q: [words(f"plan {q}", 2500)] for q in "pqr"}
    write = {q: [words("head", 2000), words(f"write {q}", 500)] for q in "pqr"}
    rows = [row for q in "pqr" for row in (asked(q, "a", 0), asked(q, "aa", 1920))]
    shapes = shaped({(q, "a" * k): (plan, write)[k - 1][q] for q in "pqr" for k in (1, 2)})
    assert dollars(rows)[1::2] == [pytest.approx(2500 - 0.9 * 1920)] * 3
    for rate in (0.0, 6.0):
        priced = [row.cost_usd / PER_TOKEN for row in CallRate(rows, two_models(), rate, shapes).rows()]
        warm = 1.0 - math.exp(-rate / 12.0)
        assert priced == pytest.approx([2500, 2500 - 0.9 * 1920 * warm] * 3)


def test_rows_without_shapes_keep_their_rule():
    rows = [asked("p", "a", 0), asked("q", "a", 1920), asked("r", "a", 1920)]
    some = shaped({("p", "a"): [words("head", 2500)]})
    assert CallRate(rows, two_models(), 6.0, some).facts == CallRate(rows, two_models(), 6.0).facts
