"""The contract of workers: in this process, and in fresh ones."""

import pytest
from kit.contracts.workers import WorkerContract
from kit.toys.priced import load_priced

from vinelm.profiler import ExecutionConfig, ProfileSettings, WorkflowSource
from vinelm.profiler.execution.fingerprint import fingerprint
from vinelm.profiler.execution.unit import UnitRunner
from vinelm.profiler.executor import make_worker


def worker_of(execution):
    loaded = load_priced(n_requests=2)
    given = (loaded.workflow, loaded.catalog, loaded.backends)
    return make_worker(ProfileSettings(execution=execution), UnitRunner(*given), fingerprint(*given)), loaded.workflow


class TestLocalWorker(WorkerContract):
    @pytest.fixture
    def place(self):
        worker, workflow = worker_of(ExecutionConfig())
        yield worker, workflow
        worker.close()


@pytest.fixture(scope="module")
def in_processes():
    """One for all tests, the last of which closes it: it takes seconds to load."""
    source = WorkflowSource(function="kit.toys.priced:load_priced", arguments={"n_requests": 2})
    worker, workflow = worker_of(ExecutionConfig(isolation="process", source=source))
    yield worker, workflow
    worker.close()


class TestProcessWorker(WorkerContract):
    @pytest.fixture
    def place(self, in_processes):
        return in_processes
