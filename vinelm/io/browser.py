"""Detects whether this desktop has a browser, and opens pages in it."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path

_ELSEWHERE = ("SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY", "CI")
"""Environment variables set where nobody sits at this machine's screen: a remote shell, or a build server's job."""


def has_desktop() -> bool:
    """Return whether a page can be shown: the output is a terminal of this machine, which has a screen and a browser."""
    if not sys.stdout.isatty() or any(os.environ.get(name) for name in _ELSEWHERE):
        return False
    has_screen = sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    if not has_screen:
        return False  # webbrowser would find browsers that take over the terminal
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def open_page(page: Path) -> bool:
    """Open a file in the browser, and return whether a browser was started."""
    try:
        return webbrowser.open(page.resolve().as_uri())
    except (webbrowser.Error, OSError):
        return False
