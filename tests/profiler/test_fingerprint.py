"""A fingerprint changes with what decides an answer, and with nothing else; the mismatch names the part."""

import importlib.util
import sys

import pytest
from kit.toys.profiling import ToyBackend, catalog_for, toy

from vinelm.profiler.execution.fingerprint import code_digest, fingerprint, store_identity

SOURCE = '''
"""A module."""
import math
LIMIT = 3
PROMPTS = {"a": "Answer: {x}"}
class Helper:
    scale = 2
    def times(self, x):
        """Doc."""
        return x * self.scale
def inner(x):
    return x + LIMIT
def stage(state, model, start=1):
    """Says something."""
    # a remark
    return inner(start) + Helper().times(1) + math.floor(2.5) + len(PROMPTS["a"])
unrelated = "not used"
'''


@pytest.fixture
def digest(tmp_path, request):
    counter = iter(range(100))

    def of(source: str) -> str:
        name = "fingerprinted"  # the same name each time: only the code differs
        path = tmp_path / f"v{next(counter)}" / "app.py"
        path.parent.mkdir()
        path.write_text(source)
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        request.addfinalizer(lambda: sys.modules.pop(name, None))
        spec.loader.exec_module(module)
        return code_digest(module.stage)

    return of


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# a remark", "# another remark\n"),
        ('"""Says something."""', '"""Says something else."""'),
        ('"""Doc."""', '"""Dok."""'),
        ("return inner(start) + Helper", "return  inner( start )  +  Helper"),
        ('unrelated = "not used"', 'unrelated = "still not used"'),
        ('"""A module."""', '"""A module."""\n\n\n'),
    ],
)
def test_layout_and_remarks_are_no_change(digest, old, new):
    assert old in SOURCE
    assert digest(SOURCE) == digest(SOURCE.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 3", "LIMIT = 4"),
        ("Answer: {x}", "Answer in one word: {x}"),
        ("return x + LIMIT", "return x - LIMIT"),
        ("return x * self.scale", "return x * self.scale * 1"),
        ("scale = 2", "scale = 3"),
        ("start=1", "start=2"),
        ("math.floor", "math.ceil"),
    ],
)
def test_code_constants_defaults_and_helpers_are_a_change(digest, old, new):
    assert old in SOURCE
    assert digest(SOURCE) != digest(SOURCE.replace(old, new))


def test_closures_and_objects_count():
    def make(word):
        def stage(state, model):
            return word

        return stage

    assert code_digest(make("a")) == code_digest(make("a"))
    assert code_digest(make("a")) != code_digest(make("b"))


def parts(workflow):
    return fingerprint(workflow, catalog_for(workflow), {"test": ToyBackend()})


def test_each_part_of_a_workflow_has_a_digest_of_its_own():
    workflow = toy(resources={"db": "d1"})
    found = parts(workflow)
    assert set(found) == {"graph", "stage generate", "stage repair", "route 1", "node check", "scorer", "resource db"}
    assert found == parts(workflow)
    changed = parts(toy(resources={"db": "d2"}, score=lambda request, state: True))
    assert {name for name in found if found[name] != changed[name]} == {"scorer", "resource db"}


def test_the_identity_says_what_changed():
    workflow = toy()
    catalog, backends = catalog_for(workflow), {"test": ToyBackend()}
    one = store_identity(workflow, catalog, backends, settings={"seed": 1})
    assert one.difference(store_identity(workflow, catalog, backends, settings={"seed": 1})) is None
    assert "setting seed" in one.difference(store_identity(workflow, catalog, backends, settings={"seed": 2}))
    assert one.is_simulated
    assert one.bound_template() == workflow.template
    assert one.models().to_dict() == catalog.to_dict()
