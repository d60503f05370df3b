"""A store is a regular file: a pipe is not waited for, a device gets no journal, and nothing is left beside them."""

import os
import stat

import pytest

from vinelm.errors import StoreError
from vinelm.traces import ObservationStore, check_store
from vinelm.traces.databases.lock import run_lock
from vinelm.traces.testing import an_identity


@pytest.fixture(params=["pipe", "null", "folder"])
def target(request, tmp_path):
    path = tmp_path / request.param
    if request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "null":
        path.symlink_to("/dev/null")
    else:
        path.mkdir()
    return path


def test_nothing_opens_it_and_nothing_is_left(target):
    def locked(path):
        with run_lock(path):
            pass

    before = os.listdir("/dev")
    for use in (ObservationStore.open, check_store, locked, lambda path: ObservationStore.open_or_create(path, an_identity())):
        with pytest.raises(StoreError, match=r"directory|Not a regular file"):
            use(target)
    assert os.listdir(target.parent) == [target.name]
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert not [name for name in set(os.listdir("/dev")) - set(before) if name.startswith("null")]
