"""Every package hands on what its stub says, and documents it."""

import inspect
from importlib import import_module

import pytest
from kit.house import HOUSE

PACKAGES = sorted(name for name in HOUSE.files if HOUSE.public(name))


def test_every_public_name_is_there():
    lacking = []
    for package in PACKAGES:
        module = import_module(package)
        shown = set(dir(module))
        lacking += [f"{package}.{n}" for n in HOUSE.public(package) if n not in shown or getattr(module, n, None) is None]
    assert not lacking, "\n".join(lacking)


def test_every_public_class_and_function_is_documented():
    found = {
        f"{package}.{name}": getattr(import_module(package), name) for package in PACKAGES for name in HOUSE.public(package)
    }
    bare = [name for name, one in found.items() if (inspect.isclass(one) or inspect.isfunction(one)) and not one.__doc__]
    assert not bare, "\n".join(bare)


def test_what_is_unknown_is_no_attribute():
    with pytest.raises(AttributeError, match="nothing_of_that_name"):
        import_module("vinelm").nothing_of_that_name  # noqa: B018 - reading it is the test
