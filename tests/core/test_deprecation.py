"""What README and docs once showed still imports, and says where it is now."""

from importlib import import_module

import pytest

OLD = (
    ("vinelm.profiler.workplace", "Workplace"),
    ("vinelm.controller.load", "OwnLoad"),
    ("vinelm.controller.load", "ReportedLoad"),
    ("vinelm.controller.load", "EnginePoller"),
    ("vinelm.controller.curves", "load_curves"),
    ("vinelm.controller.engines", "sglang_requests"),
    ("vinelm.controller.engines", "vllm_requests"),
    ("vinelm.workflows.examples.sql_service", "workflow"),
    ("vinelm.workflows.examples.react_agent", "workflow"),
    ("vinelm.workflows.examples.coding_loop", "workflow"),
)


@pytest.mark.parametrize(("module", "name"), OLD)
def test_an_old_path_works_and_warns(module, name):
    with pytest.warns(DeprecationWarning, match=f"{module}.{name} is now vinelm"):
        assert getattr(import_module(module), name) is not None


@pytest.mark.parametrize("module", sorted({module for module, _ in OLD}))
def test_an_unknown_name_is_no_attribute(module):
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        import_module(module).nothing  # noqa: B018 - reading it is the test
