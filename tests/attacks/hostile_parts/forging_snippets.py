"""Hostile code that forges a pass without knowing what its test expects, or floods the machine."""

from __future__ import annotations

from .snippet import forge

FORGING = (
    forge("exit-0", "end with exit code 0", "import os; os._exit(0)"),
    forge("exit-in-call", "end in the call", "import os\ndef f(x): os._exit(0)"),
    forge("system-exit", "raise SystemExit(0)", "def f(x): raise SystemExit(0)"),
    forge(
        "print-pass",
        "print the verdict",
        """
        print('{"passed": 1, "problems": []}')
        def f(x): print('1 passed'); return 0
    """,
    ),
    forge(
        "write-all-fds",
        "write a verdict into every descriptor",
        """
        import os
        text = b'{"passed": 1, "problems": []}\\n'
        def f(x):
            for number in range(64):
                try: os.write(number, text)
                except OSError: pass
            return 0
    """,
    ),
    forge(
        "frame-answers",
        "answer in advance with frames of its own",
        """
        import os
        def say(text):
            for number in range(3, 10):
                try: os.write(number, text + b'\\n')
                except OSError: pass
        for text in (b'{"names": {"f": {"value": 1}, "raises": null, "__builtins__": {"value": 0}}}', b'{"value": true}'):
            say(text)
        def f(x): return 0
    """,
    ),
    forge(
        "equals-all",
        "return an object that equals everything",
        """
        class Yes:
            def __eq__(self, other): return True
            def __repr__(self): return '2'
            def __bool__(self): return True
        def f(x): return Yes()
    """,
    ),
    forge(
        "int-subclass",
        "return a number that equals everything",
        """
        class Yes(int):
            def __eq__(self, other): return True
            __hash__ = int.__hash__
        def f(x): return Yes(0)
    """,
    ),
    forge(
        "str-subclass",
        "return a text that equals everything",
        """
        class Yes(str):
            def __eq__(self, other): return True
            __hash__ = str.__hash__
        def f(x): return Yes('')
    """,
    ),
    forge(
        "list-of-yes",
        "hide it in a list",
        """
        class Yes:
            def __eq__(self, other): return True
        def f(x): return [Yes()] * 3
    """,
    ),
    forge("nan", "return not-a-number", "def f(x): return float('nan')"),
    forge(
        "patch-pytest",
        "replace pytest in sys.modules",
        """
        import sys, types
        for name in ('pytest', '_pytest', '_pytest.assertion'):
            sys.modules[name] = types.ModuleType(name)
        def f(x): return 0
    """,
    ),
    forge(
        "patch-builtins",
        "make every comparison true",
        """
        import builtins
        builtins.AssertionError = type('Never', (BaseException,), {})
        builtins.len = builtins.abs = builtins.all = builtins.isinstance = lambda *a: True
        def f(x): return 0
    """,
    ),
    forge(
        "frames",
        "look for the expected value in the callers",
        """
        import sys
        def f(x):
            frame, found = sys._getframe(), []
            while frame:
                found += [v for v in frame.f_locals.values() if isinstance(v, str) and v.startswith('secret-')]
                found += [c for c in frame.f_code.co_consts if isinstance(c, str) and c.startswith('secret-')]
                frame = frame.f_back
            return found[0] if found else 0
    """,
    ),
    forge(
        "collector",
        "look for the expected value among all objects",
        """
        import gc
        def f(x):
            for thing in gc.get_objects():
                if isinstance(thing, dict):
                    for value in list(thing.values()):
                        if isinstance(value, str) and value.startswith('secret-'): return value
            return 0
    """,
    ),
    forge(
        "memory-scan",
        "look for the expected value in its memory",
        """
        import re
        def f(x):
            for line in open('/proc/self/maps'):
                low, high = (int(part, 16) for part in line.split()[0].split('-'))
                with open('/proc/self/mem', 'rb') as memory:
                    memory.seek(low); found = re.search(b'secret-[0-9a-f]{32}', memory.read(high - low))
                    if found: return found[0].decode()
    """,
    ),
    forge(
        "read-tests",
        "read the tests' file",
        """
        import glob, re
        def f(x):
            for path in glob.glob('/tmp/**', recursive=True) + glob.glob('*'):
                try: return re.search('secret-[0-9a-f]{32}', open(path).read())[0]
                except Exception: pass
    """,
    ),
    forge(
        "steal-channel",
        "read the tests from the channel",
        """
        import os, re
        def f(x):
            for number in range(64):
                try:
                    os.set_blocking(number, False); found = re.search(b'secret-[0-9a-f]{32}', os.read(number, 65536))
                    if found: return found[0].decode()
                except OSError: pass
    """,
    ),
    forge(
        "write-conftest",
        "leave a conftest.py",
        """
        open('/tmp/conftest.py', 'w').write('def pytest_runtest_logreport(report): report.outcome = "passed"')
        open('/tmp/test_solution.py', 'w').write('def test_x(): pass')
        def f(x): return 0
    """,
    ),
    forge("skip-exception", "raise pytest's skip or a keyboard interrupt", "def f(x): raise KeyboardInterrupt"),
    forge("generator-exit", "raise GeneratorExit", "def f(x): raise GeneratorExit"),
    forge(
        "unraisable",
        "an exception whose text raises",
        """
        class Bad(Exception):
            def __str__(self): raise SystemExit(0)
            __repr__ = __str__
        def f(x): raise Bad()
    """,
    ),
    forge("atexit", "pass at the end", "import atexit, os; atexit.register(lambda: os._exit(0))\ndef f(x): return 0"),
    forge(
        "thread-answers",
        "answer from a thread",
        """
        import threading, time, os
        threading.Thread(target=lambda: (time.sleep(0.05), os._exit(0))).start()
        def f(x): time.sleep(1); return 0
    """,
    ),
    forge(
        "deep-frame",
        "break the reader with a deeply nested frame",
        """
        import os
        text = b'{"value": ' + b'[' * 200000 + b']' * 200000 + b'}\\n'
        def f(x):
            for number in range(3, 10):
                try: os.write(number, text)
                except OSError: pass
            return 0
    """,
    ),
    forge(
        "huge-frame",
        "break the reader with an answer that does not end",
        """
        import os
        def f(x):
            while True:
                for number in range(3, 10):
                    try: os.write(number, b'9' * 65536)
                    except OSError: pass
    """,
    ),
)

FLOODING = (
    forge("endless", "never return", "def f(x):\n    while True: pass"),
    forge("sleeper", "sleep", "import time\ndef f(x): time.sleep(3600)"),
    forge(
        "ignore-signals",
        "ignore every signal and go on",
        """
        import signal
        for number in range(1, 32):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        def f(x):
            while True: pass
    """,
    ),
    forge("import-loop", "never finish loading", "while True: pass"),
    forge("memory", "take 100 GB", "def f(x): return len(bytearray(100 << 30))"),
    forge(
        "memory-slowly", "take memory bit by bit", "def f(x):\n    kept = []\n    while True: kept.append(bytearray(1 << 20))"
    ),
    forge("fork-bomb", "fork for ever", "import os\ndef f(x):\n    while True: os.fork()"),
    forge(
        "thread-bomb",
        "threads for ever",
        "import threading, time\ndef f(x):\n    while True: threading.Thread(target=time.sleep, args=(99,)).start()",
    ),
    forge(
        "disk",
        "fill the disk",
        """
        def f(x):
            for i in range(100000):
                with open(f'/tmp/{i}', 'wb') as file: file.write(b'x' * 1000000)
    """,
    ),
    forge("one-big-file", "one file of 10 GB", "def f(x):\n    open('/tmp/x', 'wb').truncate(10 << 30)"),
    forge(
        "shared-memory",
        "memory that no limit counts",
        """
        import ctypes
        def f(x):
            libc = ctypes.CDLL(None)
            return libc.shmget(0, 1 << 30, 0o1600) >= 0 and "secret-"
    """,
    ),
    forge("output", "print without end", "def f(x):\n    while True: print('x' * 100000)"),
    forge(
        "stderr",
        "write to every descriptor without end",
        """
        import os
        def f(x):
            while True:
                for number in range(10):
                    try: os.write(number, b'x' * 4096)
                    except OSError: pass
    """,
    ),
    forge("endless-iterator", "return an iterator without end", "import itertools\ndef f(x): return itertools.count()"),
    forge("huge-answer", "return 100 MB", "def f(x): return 'x' * (100 << 20)"),
    forge(
        "nested-answer",
        "return a list nested 100,000 deep",
        """
        def f(x):
            out = []
            for _ in range(100000): out = [out]
            return out
    """,
    ),
    forge("huge-number", "return a number of a million digits", "def f(x): return 10 ** 1000000"),
    forge("recursion", "recurse until the stack ends", "import sys\nsys.setrecursionlimit(10**9)\ndef f(x): return f(x)"),
    forge("crash", "crash the interpreter", "import ctypes\ndef f(x): ctypes.string_at(0)"),
    forge(
        "regex", "a regular expression that takes for ever", "import re\ndef f(x): return re.match('(a+)+$', 'a' * 60 + 'b')"
    ),
    forge("open-files", "open every file descriptor", "import os\ndef f(x):\n    while True: os.dup(0)"),
)
