"""When a report is opened: on a terminal of a machine with a screen and a browser, and nowhere else."""

import sys
import webbrowser

import pytest

from vinelm.io.browser import has_desktop, open_page


@pytest.fixture
def desktop(monkeypatch):
    """A terminal on a Linux desktop."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY", "CI", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "get", object)
    return monkeypatch


def test_a_terminal_on_a_desktop(desktop):
    assert has_desktop()


@pytest.mark.parametrize(("name", "value"), [("DISPLAY", ""), ("SSH_CONNECTION", "10.0.0.1 5 10.0.0.2 22"), ("CI", "true")])
def test_elsewhere(desktop, name, value):
    desktop.setenv(name, value)
    assert not has_desktop()


def test_output_that_is_read_by_a_program(desktop):
    desktop.setattr(sys.stdout, "isatty", lambda: False, raising=False)
    assert not has_desktop()


def test_without_a_browser(desktop, tmp_path):
    def missing(*_):
        raise webbrowser.Error("could not locate runnable browser")

    desktop.setattr(webbrowser, "get", missing)
    desktop.setattr(webbrowser, "open", missing)
    assert not has_desktop()
    assert not open_page(tmp_path / "report.html")
