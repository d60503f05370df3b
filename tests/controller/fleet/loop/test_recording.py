"""Views that are written down and read again."""

from dataclasses import fields

import numpy as np
import pytest
from kit.worlds.fleet_views import QUEUED, view_of

from vinelm.controller.fleet.loop.recording import ViewRecorder, recorded_views, view_line
from vinelm.errors import ConfigError, InputError

VIEW = view_of({"session": 2**64 - 1, "rest_s": 2.5, "deadline_s": 9.0}, {"engine": "small", "state": QUEUED, "process": "p2"})


def test_a_view_comes_back(tmp_path):
    now, path = [0.0], tmp_path / "run.jsonl"
    recorder = ViewRecorder(path, now=lambda: now[0])
    for at in (0.0, 0.3, 0.9, 1.1):
        now[0] = at
        recorder(VIEW if at == 0.0 else view_of())
    recorder.close()
    assert recorder.views == 2  # one a second
    first, second = recorded_views(path)
    for one in fields(VIEW):
        np.testing.assert_array_equal(getattr(first, one.name), getattr(VIEW, one.name))
        assert getattr(getattr(first, one.name), "dtype", None) == getattr(getattr(VIEW, one.name), "dtype", None)
    assert len(second) == 0
    with pytest.raises(ValueError, match="read-only"):
        first.session[0] = 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1 is no recorded view"),
        ("[]", "line 1 is no recorded view"),
        ("{}", "line 1 is no recorded view: it lacks 'session'"),
        (view_line(VIEW).replace('"engine":[0,4]', '"engine":[0]'), "its columns differ in length"),
        (view_line(VIEW).replace('"engine":[0,4]', '"engine":[0,9]'), "some engine has no name"),
        (view_line(VIEW).replace('"processes":["p1","p2"]', '"processes":["p1"]'), "some process has no name"),
        (view_line(VIEW).replace('"groups":["large",', '"groups":['), "not one group for each engine"),
        (view_line(VIEW).replace("[18446744073709551615,", "[-1,"), "is no recorded view"),
    ],
)
def test_a_line_that_is_none(tmp_path, line, message):
    path = tmp_path / "run.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(InputError, match=message):
        list(recorded_views(path))


def test_a_file_that_is_none(tmp_path):
    with pytest.raises(InputError, match="cannot be read: no such file"):
        list(recorded_views(tmp_path / "run.jsonl"))
    with pytest.raises(InputError, match="cannot be read: it is a folder"):
        list(recorded_views(tmp_path))
    (tmp_path / "run.jsonl").touch()
    with pytest.raises(InputError, match="are empty"):
        list(recorded_views(tmp_path / "run.jsonl"))
    (tmp_path / "run.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="it is no text"):
        list(recorded_views(tmp_path / "run.jsonl"))
    with pytest.raises(ConfigError, match="cannot be recorded in"):
        ViewRecorder(tmp_path / "nowhere" / "run.jsonl")
