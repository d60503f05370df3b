"""What a hostile snippet is."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent, indent


@dataclass(frozen=True, slots=True)
class Snippet:
    """An attack. ``is_forger``: it is through if its test passes; otherwise if ``f(1)`` is ``"through"``."""

    name: str
    tries: str
    code: str
    is_forger: bool = False


def reach(name: str, tries: str, body: str) -> Snippet:
    """``body`` returns what it reached; an exception or something false means that it did not."""
    inner = indent(dedent(body).strip(), "    ")
    code = f"""import os, sys, socket, subprocess, ctypes, signal, threading, time, glob
def attack():
{inner}
def f(x):
    return "through" if attack() else "stopped"
"""
    return Snippet(name, tries, code)


def forge(name: str, tries: str, code: str) -> Snippet:
    return Snippet(name, tries, dedent(code).strip() + "\n", is_forger=True)
