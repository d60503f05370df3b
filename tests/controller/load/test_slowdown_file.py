import json

import pytest

from vinelm.controller import SlowdownCurve, load_curves
from vinelm.controller.load.slowdown import check_writable, save_curve
from vinelm.errors import ConfigError

LINE = SlowdownCurve((0.0, 2.0, 8.0), (0.0, 0.5, 3.0))
FLAT = SlowdownCurve((0.0,), (0.0,))


def test_curves_of_several_engines_share_a_file(tmp_path):
    path = tmp_path / "slowdown.json"
    save_curve(path, "east", LINE, {"model": "m0"})
    save_curve(path, "west", FLAT, {})
    assert load_curves(path) == {"east": LINE, "west": FLAT}
    save_curve(path, "east", FLAT, {})
    assert load_curves(path) == {"east": FLAT, "west": FLAT}
    assert [item.name for item in tmp_path.iterdir()] == ["slowdown.json"]


def test_a_file_written_by_hand_may_be_toml(tmp_path):
    path = tmp_path / "slowdown.toml"
    path.write_text(
        'format = "vinelm slowdown curves"\nversion = 1\n[curves."http://gpu:1/v1"]\nrequests = [0, 2]\nextra_s = [0, 1]\n'
    )
    assert load_curves(path) == {"http://gpu:1/v1": SlowdownCurve((0.0, 2.0), (0.0, 1.0))}
    with pytest.raises(ConfigError, match=r"written as JSON"):
        check_writable(path)


def written(tmp_path, **changes):
    plain = {"format": "vinelm slowdown curves", "version": 1, "curves": {}} | changes
    path = tmp_path / "slowdown.json"
    path.write_text(json.dumps(plain))
    return path


@pytest.mark.parametrize(
    ("curve", "words"),
    [
        ({"requests": [0, 1]}, "lists of numbers"),
        ({"requests": [0, "a"], "extra_s": [0, 1]}, "lists of numbers"),
        (None, "lists of numbers"),
        ({"requests": [], "extra_s": []}, "rise from 0"),
        ({"requests": [0, 1], "extra_s": [0]}, "both of one length"),
        ({"requests": [1, 2], "extra_s": [0, 1]}, "rise from 0"),
        ({"requests": [0, 0], "extra_s": [0, 1]}, "rise from 0"),
        ({"requests": [0, 1, 2], "extra_s": [0, 2, 1]}, "never fall"),
        ({"requests": [0, 1], "extra_s": [0, float("nan")]}, "never fall"),
        ({"requests": [0, 1], "extra_s": [1, 2]}, "start at 0"),
    ],
)
def test_a_curve_that_is_none_is_named(tmp_path, curve, words):
    with pytest.raises(ConfigError, match=f"curve of 'east'.*{words}"):
        load_curves(written(tmp_path, curves={"east": curve}))


def test_another_file_is_refused_and_left_as_it_is(tmp_path):
    for changes, words in (
        ({"version": 2}, "version 2"),
        ({"format": "else"}, "holds no slowdown curves"),
        ({"curves": []}, "holds no slowdown curves"),
    ):
        path = written(tmp_path, **changes)
        before = path.read_bytes()
        with pytest.raises(ConfigError, match=words):
            save_curve(path, "east", LINE, {})
        assert path.read_bytes() == before
    path.write_text("{")
    with pytest.raises(ConfigError, match="holds no slowdown curves"):
        load_curves(path)
    with pytest.raises(ConfigError, match="cannot read"):
        load_curves(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="make the folder"):
        check_writable(tmp_path / "none" / "slowdown.json")
