"""Ctrl-C waits for the end of an import: what is imported twice fails in libraries that we cannot mend."""

import signal
import subprocess
import sys
import threading

import pytest

from vinelm.extras import required_extra
from vinelm.whole_imports import whole_import

CHILD = """
import os, signal, sys

class Interrupts:
    \"\"\"Sends Ctrl-C while numpy is being imported, once its compiled part is loaded.\"\"\"

    is_done = False

    def find_spec(self, name, path=None, target=None):
        if "numpy._core._multiarray_umath" in sys.modules and name.startswith("numpy.") and not self.is_done:
            self.is_done = True
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupts())
try:
    from vinelm import AnnotatedTrie
except KeyboardInterrupt:
    print("interrupted")
from vinelm import AnnotatedTrie
print(AnnotatedTrie.__name__, signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""


def test_a_process_works_after_ctrl_c_in_its_first_import():
    ended = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=False, timeout=120)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "interrupted\nAnnotatedTrie True\n", "")


@pytest.fixture
def handled():
    """Ctrl-C as a process has it at its start, and what a handler of the application was told."""
    told = []
    before = signal.signal(signal.SIGINT, lambda number, frame: told.append(number))
    yield told
    signal.signal(signal.SIGINT, before)


def test_the_handler_is_called_once_the_import_has_ended(handled):
    own = signal.getsignal(signal.SIGINT)
    with whole_import(), required_extra("none", "nothing"):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert handled == []
    assert handled == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is own


def test_it_is_called_after_a_failed_import_too(handled):
    def load():
        with whole_import():
            signal.raise_signal(signal.SIGINT)
            raise ImportError

    with pytest.raises(ImportError):
        load()
    assert handled == [signal.SIGINT]


def test_a_handler_that_the_imported_module_sets_stays(handled):
    with whole_import():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_other_threads_leave_the_handlers_alone(handled):
    found = []

    def look():
        with whole_import():
            found.append(signal.getsignal(signal.SIGINT))

    own = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [own]
