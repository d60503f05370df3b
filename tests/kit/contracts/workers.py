"""The contract of workers, as tests: subclass it and give it a worker and its workflow."""

from __future__ import annotations

from itertools import product

import pytest

from vinelm.profiler.execution.job import Job, Worker
from vinelm.requests.workflow import Workflow


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
