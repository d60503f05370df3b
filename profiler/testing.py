"""Contracts of samplers and workers, as tests: subclass a contract and give it a way to make one."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Iterator, Sequence
from itertools import islice, product
from typing import Any

import pytest

from vinelm.catalog import Catalog, Model, Price
from vinelm.profiler.execution.job import Job, Worker
from vinelm.profiler.runner import settings_of
from vinelm.requests.protocols import RequestPath, Sampler
from vinelm.requests.workflow import Request, Workflow
from vinelm.rows.observation import Observation
from vinelm.template import Loop, Stage, Template

ROUNDS, PATHS = 3, 60  # how far a sampler is followed; the uniform one never ends


def catalog_of(*names: str) -> Catalog:
    """Return a catalog of priced models with these names."""
    price = Price(input=1.0, output=4.0, source="a test", as_of=datetime.date(2026, 1, 1))
    fields: dict[str, Any] = {"provider": "test", "engine": "e", "max_tokens": 100, "price": price}
    return Catalog(Model(name=name, model_id=name, **fields) for name in names)


def outcome(template: Template, request_id: str, prefix: tuple[str, ...]) -> Observation:
    """Return the observation of a cell whose outcome is a hash of the cell."""
    digest = hashlib.sha256("/".join((request_id, *prefix)).encode()).digest()
    is_right = digest[0] % 3 == 0
    stage = template.invocations[len(prefix) - 1].name
    return Observation(
        request_id=request_id, prefix=prefix, stage=stage, success=is_right, stopped=is_right,
        cost_usd=len(prefix) * (1 + digest[1] / 256), latency_s=1.0,
    )  # fmt: skip


def observe(template: Template, paths: Sequence[RequestPath], earlier: Sequence[Observation]) -> tuple[Observation, ...]:
    """Return what a sampler is given after it proposed these paths: each cell along them once, in order."""
    rows = {(row.request_id, row.prefix): row for row in earlier}
    for request_id, choices, *_ in paths:
        path = tuple(map(str, choices))  # of a linear template
        for length in range(1, len(path) + 1):
            row = rows.setdefault((request_id, path[:length]), outcome(template, request_id, path[:length]))
            if row.ended(template.stop):
                break
    return tuple(rows.values())


class SamplerContract:
    """The tests of :class:`~vinelm.requests.protocols.Sampler`. Override :meth:`make_sampler`."""

    template = Template((Stage("generate", ("m0", "m1")), Loop((Stage("repair", ("m0", "m1")),), 2)))
    catalog = catalog_of("m0", "m1")
    request_ids = tuple(f"q{i}" for i in range(6))

    def make_sampler(self, template: Template, catalog: Catalog, request_ids: Sequence[str]) -> Sampler:
        """Return a new sampler; called again it must return an equal one."""
        raise NotImplementedError

    def _new(self) -> Sampler:
        return self.make_sampler(self.template, self.catalog, self.request_ids)

    def _rounds(self, sampler: Sampler) -> Iterator[tuple[int, tuple[Observation, ...], list[RequestPath]]]:
        """Number, observations and proposed paths of the first rounds."""
        observations: tuple[Observation, ...] = ()
        for round_ in range(ROUNDS):
            paths = list(islice(sampler.propose(round_, observations), PATHS))
            yield round_, observations, paths
            if not paths:
                return
            observations = observe(self.template, paths, observations)

    def test_paths_are_those_of_the_template(self) -> None:
        """Known requests, allowed models, no longer than the template."""
        stages = self.template.invocations
        first = next(self._rounds(self._new()))[2]
        assert first, "an empty first round makes no profile"
        for _, _, paths in self._rounds(self._new()):
            for request_id, path, *_ in paths:
                assert request_id in self.request_ids
                assert 1 <= len(path) <= len(stages)
                assert all(model in (stage.models or ()) for model, stage in zip(path, stages, strict=False))

    def test_equal_samplers_propose_the_same(self) -> None:
        """Settings and observations are all that counts."""
        assert list(self._rounds(self._new())) == list(self._rounds(self._new()))

    def test_a_round_depends_on_its_observations_alone(self) -> None:
        """Not on what was asked before, nor on how far earlier rounds were read."""
        for round_, observations, paths in list(self._rounds(self._new())):
            fresh = self._new()
            assert list(islice(fresh.propose(round_, observations), PATHS)) == paths
            next(iter(fresh.propose(0, ())), None)
            assert list(islice(fresh.propose(round_, observations), PATHS)) == paths

    def test_the_settings_that_decide_it_are_plain_and_stay_as_they_are(self) -> None:
        """A store records them, so that a later run with other settings is noticed."""
        sampler = self._new()
        requests = [Request(request_id, {}) for request_id in self.request_ids]
        before = json.dumps(settings_of(sampler, requests))
        list(self._rounds(sampler))
        assert json.dumps(settings_of(sampler, requests)) == before == json.dumps(settings_of(self._new(), requests))


class WorkerContract:
    """The tests of :class:`~vinelm.profiler.execution.job.Worker`. Give a fixture ``place`` with a worker and the workflow
    that it runs: of at least two invocations, on models that ask for a top-up before each call.
    """

    @pytest.fixture
    def place(self) -> tuple[Worker, Workflow]:
        """A worker and its workflow."""
        raise NotImplementedError

    def test_a_unit_gives_the_row_of_its_cell_and_a_checkpoint_to_resume_from(self, place: tuple[Worker, Workflow]) -> None:
        """Two invocations of one request."""
        worker, workflow = place
        request, model = workflow.requests[0], workflow.template.models[0]
        checkpoint: bytes | None = None
        for stage, prefix in zip(workflow.template.invocations, ((model,), (model, model)), strict=False):
            found = worker.run(Job(request, prefix, checkpoint, 1.0), lambda _: True)
            assert found.observation is not None
            assert (found.observation.request_id, found.observation.prefix) == (request.id, prefix)
            assert (found.observation.stage, found.observation.failure) == (stage.name, None)
            assert found.settled_usd == found.observation.cost_usd + found.observation.tool_cost_usd
            checkpoint = found.checkpoint
            if found.observation.stopped:
                break

    def test_the_same_unit_gives_the_same_outcome(self, place: tuple[Worker, Workflow]) -> None:
        """Row and checkpoint, bit for bit, with a model that repeats its answers."""
        worker, workflow = place
        job = Job(workflow.requests[0], (workflow.template.models[0],), None, 1.0)
        assert worker.run(job, lambda _: True) == worker.run(job, lambda _: True)

    def test_a_call_beyond_the_reservation_asks_and_is_not_made_without_consent(self, place: tuple[Worker, Workflow]) -> None:
        """A refused unit has no row; granted, the same unit has one."""
        worker, workflow = place
        job = Job(workflow.requests[0], (workflow.template.models[0],), None, 0.0)
        asked: list[float] = []

        def refuse(upper_usd: float) -> bool:
            asked.append(upper_usd)
            return False

        refused = worker.run(job, refuse)
        assert (refused.observation, refused.checkpoint, refused.settled_usd) == (None, None, 0.0)
        assert len(asked) == 1
        assert asked[0] > 0.0
        granted = worker.run(job, lambda _: True)
        assert granted.observation is not None

    def test_a_state_that_is_lost_is_made_again_and_paid_for(self, place: tuple[Worker, Workflow]) -> None:
        """The row is that of an extension from the checkpoint; the dollars are those of both invocations."""
        worker, workflow = place
        for request, first in product(workflow.requests, workflow.template.models):
            parent = worker.run(Job(request, (first,), None, 1.0), lambda _: True)
            if parent.observation is not None and not parent.observation.ended(workflow.template.stop):
                break
        else:
            pytest.fail("every request ends at its first invocation: give the workflow more")
        whole = worker.run(Job(request, (first, first), parent.checkpoint, 1.0), lambda _: True)
        again = worker.run(Job(request, (first, first), None, 1.0, n_again=1), lambda _: True)
        assert (again.observation, again.checkpoint) == (whole.observation, whole.checkpoint)
        assert again.settled_usd == pytest.approx(parent.settled_usd + whole.settled_usd)

    def test_a_state_is_scored_without_a_call(self, place: tuple[Worker, Workflow]) -> None:
        """Its success is that of the row, and nothing is reserved for it."""
        worker, workflow = place
        request, model = workflow.requests[0], workflow.template.models[0]
        found = worker.run(Job(request, (model,), None, 1.0), lambda _: True)
        scored = worker.run(Job(request, (model,), found.checkpoint, 0.0, is_scoring=True), lambda _: False)
        assert found.observation is not None
        assert scored.observation is not None
        assert (scored.observation.success, scored.settled_usd) == (found.observation.success, 0.0)

    def test_closing_it_twice_is_harmless(self, place: tuple[Worker, Workflow]) -> None:
        """The run closes it, and so does a second Ctrl-C."""
        worker, _ = place
        worker.close()
        worker.close()
