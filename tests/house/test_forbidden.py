"""Mechanisms that the package does without (docs/architecture.md#invariants)."""

import ast

from kit.house import HOUSE, ROOT

NAMES = {path: name for name, path in HOUSE.files.items()}
FILES = sorted(NAMES)
PICKLES = {"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}


def nodes_of(path, *kinds):
    """From the trees that the other tests of the house look at, too."""
    return [node for node in HOUSE.nodes[NAMES[path]] if isinstance(node, kinds)]


def imports_of(path):
    """Each imported name with the package that it comes from."""
    for node in nodes_of(path, ast.Import, ast.ImportFrom):
        for alias in node.names:
            home = alias.name if isinstance(node, ast.Import) else node.module or ""
            yield (alias.asname or alias.name).partition(".")[0], home.partition(".")[0]


def test_nothing_is_unpickled():
    found = [path for path in FILES if PICKLES & {home for _, home in imports_of(path)}]
    for path in FILES:
        words = [word for call in nodes_of(path, ast.Call) for word in call.keywords if word.arg == "allow_pickle"]
        found += [path for word in words if getattr(word.value, "value", True)]
    assert found == []


def test_no_foreign_attribute_is_replaced():
    found = []
    for path in FILES:
        foreign = {name for name, home in imports_of(path) if home not in ("vinelm", "")}
        targets = [target for node in nodes_of(path, ast.Assign) for target in node.targets]
        targets += [node.target for node in nodes_of(path, ast.AnnAssign, ast.AugAssign)]
        for target in targets:
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id in foreign:
                found.append(f"{path.relative_to(ROOT)}:{target.lineno}: {ast.unparse(target)}")
    assert found == []
