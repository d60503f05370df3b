"""A ``.vine`` file with valid checksums and wrong contents is refused, and a file that changes under us changes nothing."""

import json
import os
import subprocess
import sys
import zipfile
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from core.vinefile.test_file import make_trie
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.oracles.random_cases import random_annotated

from vinelm.controller import Planner
from vinelm.errors import InfeasibleError, TrieFileError
from vinelm.objective import Objective
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import NODE_ARRAYS
from vinelm.trie.trie import ARRAYS
from vinelm.vinefile import file as vinefile
from vinelm.vinefile import load_trie, save_trie


def with_array(annotated, name, values):
    if name in NODE_ARRAYS:
        return replace(annotated, **{name: values})
    arrays = {key: getattr(annotated.trie, key) for key in ARRAYS} | {name: values}
    return replace(annotated, trie=Trie(stages=annotated.trie.stages, models=annotated.trie.models, **arrays))


@pytest.mark.parametrize(
    ("name", "at", "value", "problem"),
    [
        ("end", 0, 3, "trie.end"),
        ("end", 2, 0, "trie.end"),
        ("end", 2, 2**31 - 1, "trie.end"),
        ("parent", 5, 5, "trie.parent"),
        ("parent", 5, -1, "trie.parent"),
        ("depth", 3, 9, "trie.depth"),
        ("depth", 1, 0, "trie.depth"),
        ("stage", 2, 0, "trie.stage"),
        ("stage", 2, 7, "trie.stage"),
        ("model", 2, 5, "trie.model"),
        ("model", 2, 1, "two children of one model"),
        ("success", 4, 1.5, "success is not within"),
        ("stop", 4, -0.5, "stop is not within"),
        ("cost_usd", 4, -1.0, "cost_usd is negative"),
        ("latency_var", 4, -1.0, "latency_var is negative"),
    ],
)
def test_a_wrong_array_is_named(tmp_path, name, at, value, problem):
    annotated = make_trie()
    source = annotated if name in NODE_ARRAYS else annotated.trie
    values = getattr(source, name).copy()
    values[at] = value
    save_trie(tmp_path / "a.vine", with_array(annotated, name, values))
    with pytest.raises(TrieFileError, match=rf"a\.vine: not a valid trie: .*{problem}.*vinelm estimate"):
        load_trie(tmp_path / "a.vine")


@settings(max_examples=150)
@given(data=st.data())
def test_whatever_loads_can_be_planned_over(tmp_path_factory, data):
    """Shuffled ends with good checksums hung a request for 20 seconds."""
    annotated = make_trie()
    name = data.draw(st.sampled_from([*ARRAYS, *NODE_ARRAYS]))
    values = getattr(annotated if name in NODE_ARRAYS else annotated.trie, name).copy()
    for _ in range(data.draw(st.integers(1, 4))):
        i, j = (data.draw(st.integers(0, len(values) - 1)) for _ in range(2))
        values[i], values[j] = values[j], values[i]
    path = tmp_path_factory.mktemp("fuzz") / "a.vine"
    save_trie(path, with_array(annotated, name, values))
    try:
        loaded = load_trie(path)
    except TrieFileError:
        return
    with suppress(InfeasibleError):
        Planner(loaded).plan(Objective(maximize="accuracy", max_cost_usd=1.0), node=0)


@pytest.mark.parametrize("seed", range(20))
def test_every_trie_of_ours_is_valid(tmp_path, seed):
    import random

    save_trie(tmp_path / "a.vine", random_annotated(random.Random(seed)))
    assert load_trie(tmp_path / "a.vine").trie.n_nodes > 0


def rewritten(path, change):
    """The file with its manifest changed, checksums valid."""
    with zipfile.ZipFile(path) as old:
        members = {entry.filename: old.read(entry) for entry in old.infolist()}
    manifest = json.loads(members["manifest.json"])
    change(manifest)
    members["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(path, "w") as new:
        for name, content in members.items():
            new.writestr(name, content)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["template"]["steps"][1].update(times=10**9),
        lambda m: m["template"]["steps"][1].update(times=-1),
        lambda m: m["template"]["steps"][1].update(times="many"),
        lambda m: m.update(stages=["repair", "generate"]),
        lambda m: m.update(models=["small", "small"]),
        lambda m: m.update(models=["small", "unknown"]),
        lambda m: m.update(models=[["small"], 3]),
        lambda m: m["template"].update(stop="never"),
        lambda m: m["template"]["steps"].clear(),
        lambda m: m["template"]["steps"][0].update(models=None),
        lambda m: m["catalog"].update(model=[]),
        lambda m: m.pop("template"),
        lambda m: m.update(version=10**400),
    ],
)
def test_a_wrong_manifest_is_one_line(tmp_path, change):
    path = tmp_path / "a.vine"
    save_trie(path, make_trie())
    rewritten(path, change)
    with pytest.raises(TrieFileError, match=r"^\S*a\.vine: [^\n]*$"):
        load_trie(path)


SERVE = """
import sys
import vinelm.vinefile.file as vinefile
vinefile.MAPPED_FROM = 0
trie = vinefile.load_trie(sys.argv[1])
before = trie.success.sum()
with open(sys.argv[1], "r+b") as file:
    file.truncate(0)
assert trie.success.sum() == before
for name in ("end", "parent", "model"):
    getattr(trie.trie, name).sum()
print("served on")
"""


def test_truncating_a_loaded_file_does_not_kill_the_service(tmp_path):
    """A mapping of the file itself dies of SIGBUS here."""
    save_trie(tmp_path / "a.vine", random_annotated_large())
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SERVE, str(tmp_path / "a.vine")], capture_output=True, text=True, env=environment, check=False
    )
    assert (done.returncode, done.stdout) == (0, "served on\n"), done.stderr[-500:]


def random_annotated_large():
    """A trie of several memory pages."""
    from kit.catalogs import make_catalog
    from kit.templates import make_template

    from vinelm.trie.annotated_trie import AnnotatedTrie

    catalog, template = make_catalog(8), make_template(8, 4)
    trie = Trie.from_template(template)
    arrays = {name: np.full(len(trie), 0.5) for name in NODE_ARRAYS}
    return AnnotatedTrie(trie=trie, template=template, catalog=catalog, **arrays)


def test_small_files_are_read_and_large_ones_mapped(tmp_path, monkeypatch):
    save_trie(tmp_path / "a.vine", make_trie())
    with (tmp_path / "a.vine").open("rb") as file:
        assert type(vinefile._content(file, mmap=True)) is bytes
    monkeypatch.setattr(vinefile, "MAPPED_FROM", 0)
    with (tmp_path / "a.vine").open("rb") as file:
        mapped = vinefile._content(file, mmap=True)
    assert isinstance(mapped, vinefile.memory_map.mmap)
    assert bytes(mapped) == (tmp_path / "a.vine").read_bytes()
