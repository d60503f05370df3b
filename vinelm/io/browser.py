"""True if there is a browser on this desktop, and opening a page in it."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path

_ELSEWHERE = ("SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY", "CI")
"""Set where nobody sits before this machine's screen: a remote shell, or a job of a build server."""


def has_desktop() -> bool:
    """Return whether a page could be shown here: the output is a terminal of this machine, which has a screen and a browser."""
    if not sys.stdout.isatty() or any(os.environ.get(name) for name in _ELSEWHERE):
        return False
    has_screen = sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    if not has_screen:
        return False  # webbrowser would find those that take over the terminal
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def open_page(page: Path) -> bool:
    """Open a file in the browser and return whether one was started."""
    try:
        return webbrowser.open(page.resolve().as_uri())
    except (webbrowser.Error, OSError):
        return False
