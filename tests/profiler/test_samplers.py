"""Samplers are pure: the seed alone decides."""

from collections import Counter
from itertools import islice, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.templates import make_template

from vinelm.errors import ConfigError
from vinelm.profiler import CascadeSampler, ExhaustiveSampler, make_sampler
from vinelm.requests.protocols import RequestPath
from vinelm.template import Loop, Stage, Template


@given(seed=st.integers(), n=st.integers(1, 40))
def test_a_cascade_is_its_seed(seed, n):
    def first(seed):
        return list(islice(CascadeSampler(make_template(3, 3), ["a", "b", "c"], seed).propose(0, ()), n))

    assert first(seed) == first(seed)
    assert first(seed)[: n // 2] == list(islice(CascadeSampler(make_template(3, 3), "abc", seed).propose(0, ("x",)), n // 2))


def test_a_cascade_draws_requests_and_models_uniformly():
    template = Template((Stage("generate", ("a", "b")), Loop((Stage("repair", ("b", "c", "d")),), 2)))
    ids = [f"q{i}" for i in range(5)]
    n = 20_000
    proposed = list(islice(CascadeSampler(template, ids, 0).propose(0, ()), n))
    assert all(abs(count / n - 1 / 5) < 0.02 for count in Counter(w.request_id for w in proposed).values())
    paths = Counter(w.path for w in proposed)
    assert set(paths) == set(product("ab", "bcd", "bcd"))
    assert all(abs(count / n - 1 / 18) < 0.01 for count in paths.values())


def test_seeds_differ():
    proposed = {tuple(islice(CascadeSampler(make_template(4, 3), ["a", "b"], seed).propose(0, ()), 5)) for seed in range(50)}
    assert len(proposed) == 50


def test_exhaustive_goes_request_by_request_and_depth_first():
    sampler = ExhaustiveSampler(make_template(2, 2), ["b", "a"])
    proposed = list(sampler.propose(0, ()))
    paths = [("m0", "m0"), ("m0", "m1"), ("m1", "m0"), ("m1", "m1")]
    assert proposed == [RequestPath(request, path) for request in ("b", "a") for path in paths]
    assert list(sampler.propose(1, ())) == []


def test_names():
    assert isinstance(make_sampler("cascade", make_template(), ["q"], 0), CascadeSampler)
    with pytest.raises(ConfigError, match="unknown sampler 'greedy'"):
        make_sampler("greedy", make_template(), ["q"], 0)
