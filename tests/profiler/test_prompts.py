"""A profile keeps the shape of every prompt that it buys an answer to, wherever its units run."""

import pytest
from kit.toys.profiling import load, new_store

from vinelm.profiler import ExecutionConfig, ProfileSettings, WorkflowSource, profile
from vinelm.prompts.radix import common_tokens
from vinelm.traces.store.prompts import StoredPrompts

SMALL = {"n_requests": 2, "depth": 2}
HOW = {
    "inline": ExecutionConfig(),
    "process": ExecutionConfig(isolation="process", source=WorkflowSource(function="kit.toys.profiling:load", arguments=SMALL)),
}


@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize("how", HOW)
def test_every_row_has_the_shapes_of_its_calls(tmp_path, how):
    loaded = load(**SMALL)
    with new_store(tmp_path / "s.db", loaded.workflow, loaded.backends["test"]) as store:
        settings = ProfileSettings(sampler="exhaustive", execution=HOW[how])
        profile(loaded.workflow, loaded.catalog, loaded.backends, store, settings)
        rows, shapes = store.observations(), StoredPrompts(store).read()
        checkpoints = [store.checkpoint(row.request_id, row.prefix) for row in rows]
    assert shapes.keys() == {(row.request_id, row.prefix) for row in rows}
    assert all(len(shapes[row.request_id, row.prefix]) == row.calls == 1 for row in rows)
    assert all(checkpoint is None or checkpoint[:1] in b"wefp" for checkpoint in checkpoints)
    firsts = {row.request_id: [] for row in rows}
    for row in rows:
        if row.depth == 1:
            firsts[row.request_id] += shapes[row.request_id, row.prefix]
    assert all(one == found[0] for found in firsts.values() for one in found)  # all models read the same
    one, other, *_ = (found[0] for found in firsts.values())
    assert one != other
    assert common_tokens(one, one) == one.tokens > common_tokens(one, other)
