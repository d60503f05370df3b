"""The digest of code is the same under every version of Python, and under every release: rows that are paid for hang on it."""

import ast
import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from vinelm.profiler.execution import syntax
from vinelm.profiler.execution.fingerprint import code_digest

SHAPES = Path(__file__).parent / "code_shapes.txt"
"""Code whose text, dump or bytecode differs between versions of Python."""
DIGESTS = {
    "kinds": "7a6f0a2ec12abe4cbea5283d88af04e0",
    "points": "b6aecfe6f83cc26f739ea8ae56bd3459",
    "strings": "350f6269aaa0bf77d860d09528b32933",
    "comprehensions": "68aa2f55a8336dfabdcd8dd0e8539226",
    "wrapped": "a3f26324ad0536a2d7ee23746bbd4cc4",
    "statements": "7cd08b49e8fba3cb3f4ada499f640e6c",
    "routed": "dd1681c95c7285ccf6bc17d0a4032002",
    "one": "2aa3a6384bd0a2321458a8e5d59653b6",
    "two": "2aa3a6384bd0a2321458a8e5d59653b6",
    "stage": "7ba34b90dd5a9dc08bf0d9b7963007bb",
    "Stage": "7ba34b90dd5a9dc08bf0d9b7963007bb",
}
PLAIN = """
import ast, importlib.util, json, sys
spec = importlib.util.spec_from_file_location("syntax", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(json.dumps(module.plain(ast.parse(open(sys.argv[2], encoding="utf-8").read()))))
"""


@pytest.fixture
def shapes(tmp_path):
    path = tmp_path / "shapes.py"
    path.write_text(SHAPES.read_text(encoding="utf-8"), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("code_shapes", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.mark.parametrize("name", sorted(DIGESTS))
def test_the_digest_is_the_one_that_stores_hold(name, shapes):
    """Recorded under 3.11, 3.12 and 3.13, which agree. Another digest retires the rows of every store."""
    assert code_digest(getattr(shapes, name)) == DIGESTS[name]


@pytest.mark.parametrize("minor", [11, 12, 13, 14])
def test_other_versions_make_the_same_tree(minor):
    homes = (Path.home() / ".pyenv" / "versions").glob(f"3.{minor}.*/bin/python")
    python = shutil.which(f"python3.{minor}")
    for one in [*([python] if python else []), *map(str, homes)]:
        arguments = [one, "-c", PLAIN, syntax.__file__, str(SHAPES)]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            assert json.loads(done.stdout) == syntax.plain(ast.parse(SHAPES.read_text(encoding="utf-8")))
            return
    pytest.skip(f"no Python 3.{minor} here")


def test_each_lambda_of_several_lines_is_found_where_its_lines_alone_do_not_parse(shapes):
    assert syntax.tree_of(shapes.routed) is not None
    assert code_digest(shapes.routed) != code_digest(shapes.one)


def test_what_python_makes_of_a_class_is_no_code(shapes):
    before = code_digest(shapes.points)
    del shapes.Point.__lt__  # made by the dataclass; other versions make other methods
    assert code_digest(shapes.points) == before


def test_code_that_no_file_holds_is_digested_by_what_it_does():
    made = {}
    exec("def one(x): return x + 1\ndef two(x): return x - 1", made)
    assert syntax.tree_of(made["one"]) is None
    assert code_digest(made["one"]) != code_digest(made["two"])
