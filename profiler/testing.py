"""Tests that every sampler must pass. Subclass :class:`SamplerContract` and provide a function that makes a sampler."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from vinelm.catalog import Catalog, Model, Price
from vinelm.profiler.runner import settings_of
from vinelm.requests.protocols import RequestPath, Sampler
from vinelm.requests.workflow import Request
from vinelm.rows.observation import Observation
from vinelm.template import Loop, Stage, Template

ROUNDS, PATHS = 3, 60  # how far a sampler is followed; the uniform one never ends


def catalog_of(*names: str) -> Catalog:
    """Return a catalog of models with these names and some prices."""
    price = Price(input=1.0, output=4.0, source="a test", as_of=datetime.date(2026, 1, 1))
    fields: dict[str, Any] = {"provider": "test", "engine": "e", "max_tokens": 100, "price": price}
    return Catalog(Model(name=name, model_id=name, **fields) for name in names)


def outcome(template: Template, request_id: str, prefix: tuple[str, ...]) -> Observation:
    """Return an observation of a call, with an outcome that depends only on a hash of request and models."""
    digest = hashlib.sha256("/".join((request_id, *prefix)).encode()).digest()
    is_right = digest[0] % 3 == 0
    stage = template.invocations[len(prefix) - 1].name
    return Observation(
        request_id=request_id, prefix=prefix, stage=stage, success=is_right, stopped=is_right,
        cost_usd=len(prefix) * (1 + digest[1] / 256), latency_s=1.0,
    )  # fmt: skip


def observe(template: Template, paths: Sequence[RequestPath], earlier: Sequence[Observation]) -> tuple[Observation, ...]:
    """Return the observations ``earlier``, followed by those of ``paths``.

    Each call along a path is observed once, in order, until its request ends.
    """
    rows = {(row.request_id, row.prefix): row for row in earlier}
    for request_id, choices, *_ in paths:
        path = tuple(map(str, choices))  # valid for a linear template
        for length in range(1, len(path) + 1):
            row = rows.setdefault((request_id, path[:length]), outcome(template, request_id, path[:length]))
            if row.ended(template.stop):
                break
    return tuple(rows.values())


class SamplerContract:
    """The tests that every :class:`~vinelm.requests.protocols.Sampler` must pass. Subclasses override :meth:`make_sampler`."""

    template = Template((Stage("generate", ("m0", "m1")), Loop((Stage("repair", ("m0", "m1")),), 2)))
    catalog = catalog_of("m0", "m1")
    request_ids = tuple(f"q{i}" for i in range(6))

    def make_sampler(self, template: Template, catalog: Catalog, request_ids: Sequence[str]) -> Sampler:
        """Return a new sampler; every call must return an equal one."""
        raise NotImplementedError

    def _new(self) -> Sampler:
        return self.make_sampler(self.template, self.catalog, self.request_ids)

    def _rounds(self, sampler: Sampler) -> Iterator[tuple[int, tuple[Observation, ...], list[RequestPath]]]:
        """Yield (round number, observations before the round, proposed paths) for each of the sampler's first rounds."""
        observations: tuple[Observation, ...] = ()
        for round_ in range(ROUNDS):
            paths = list(islice(sampler.propose(round_, observations), PATHS))
            yield round_, observations, paths
            if not paths:
                return
            observations = observe(self.template, paths, observations)

    def test_paths_are_those_of_the_template(self) -> None:
        """Check that a sampler proposes known requests and allowed models, and no path longer than the template."""
        stages = self.template.invocations
        first = next(self._rounds(self._new()))[2]
        assert first, "an empty first round makes no profile"
        for _, _, paths in self._rounds(self._new()):
            for request_id, path, *_ in paths:
                assert request_id in self.request_ids
                assert 1 <= len(path) <= len(stages)
                assert all(model in (stage.models or ()) for model, stage in zip(path, stages, strict=False))

    def test_equal_samplers_propose_the_same(self) -> None:
        """Check that proposals depend only on settings and observations."""
        assert list(self._rounds(self._new())) == list(self._rounds(self._new()))

    def test_a_round_depends_on_its_observations_alone(self) -> None:
        """Check that a round depends neither on earlier calls of the sampler nor on the number of paths of earlier rounds that
        were read.
        """
        for round_, observations, paths in list(self._rounds(self._new())):
            fresh = self._new()
            assert list(islice(fresh.propose(round_, observations), PATHS)) == paths
            next(iter(fresh.propose(0, ())), None)
            assert list(islice(fresh.propose(round_, observations), PATHS)) == paths

    def test_the_settings_that_decide_it_are_plain_and_stay_as_they_are(self) -> None:
        """Check that a sampler's settings can be written as JSON, are equal in equal samplers, and do not change.

        A store records the settings to detect a run with other settings.
        """
        sampler = self._new()
        requests = [Request(request_id, {}) for request_id in self.request_ids]
        before = json.dumps(settings_of(sampler, requests))
        list(self._rounds(sampler))
        assert json.dumps(settings_of(sampler, requests)) == before == json.dumps(settings_of(self._new(), requests))
