"""Every package hands on what its stub says, and documents it."""

import inspect
from importlib import import_module

import pytest
from house_kit import HOUSE

PACKAGES = sorted(name for name in HOUSE.files if HOUSE.public(name))


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_there(package):
    module = import_module(package)
    assert set(HOUSE.public(package)) <= set(dir(module))
    for name in HOUSE.public(package):
        assert getattr(module, name) is not None


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_class_and_function_is_documented(package):
    module = import_module(package)
    found = [getattr(module, name) for name in HOUSE.public(package)]
    assert not [one for one in found if (inspect.isclass(one) or inspect.isfunction(one)) and not one.__doc__]


def test_what_is_unknown_is_no_attribute():
    with pytest.raises(AttributeError, match="nothing_of_that_name"):
        import_module("vinelm").nothing_of_that_name  # noqa: B018 - reading it is the test
