"""Model-written SQL in a process with limits: the same answers, and an end to what the guards of SQLite cannot stop."""

import copy
import os
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hostile_parts import sql as attacks_on_sql

from vinelm.errors import DatasetError
from vinelm.workflows.nl2sql import limited_sql
from vinelm.workflows.nl2sql.databases import Databases
from vinelm.workflows.nl2sql.limited_sql import run_limited
from vinelm.workflows.nl2sql.sql import run_sql

ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "
ONE_STEP = "SELECT length(printf('%.*c', 2000000000, 'x'))"
"""About 20 s in one call of a function."""


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT name, city AS town FROM customer ORDER BY id LIMIT 3; -- that is all",
        "SELECT 1, 2.5, -0.0, 9e999, NULL, 'ä\n\u2028\"', x'00ff', 9223372036854775807, 0.1 + 0.2",
        "SELECT note FROM orders",
        "SELECT value FROM json_each('[1, 2]')",
        "SELECT printf('%.2f', avg(price)), format('%05d', 7) FROM orders",
        "SELECT count(*) FROM customer WHERE 0",
        "SELECT * FROM customer WHERE 0",
        ENDLESS + "SELECT x FROM c",
        ENDLESS + "SELECT hex(randomblob(10)) FROM c WHERE 0 LIMIT 1",
        "SELEC 1",
        "SELECT nope FROM customer",
        "",
        "SELECT '\ud800'",
        "SELECT zeroblob(2000000000)",
        "DELETE FROM customer",
        "SELECT 1; SELECT 2",
        "PRAGMA user_version",
        "PRAGMA temp_store = FILE",
        "SELECT load_extension('evil')",
    ],
)
def test_it_answers_as_in_this_process(shop, sql):
    limited, here = run_limited(shop, sql, timeout_s=0.5, max_rows=50), run_sql(shop, sql, timeout_s=0.5, max_rows=50)
    assert replace(limited, elapsed_s=0.0) == replace(here, elapsed_s=0.0)
    assert [[type(cell) for cell in row] for row in limited.rows] == [[type(cell) for cell in row] for row in here.rows]


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.long)])
def test_no_hostile_statement_gets_through(every):
    attacks = attacks_on_sql.run(lambda done, total: None, every)
    assert [attack for attack in attacks["attacks"] if not attack["stopped"]] == []
    assert attacks["got_through"] == 0
    assert attacks["count"] >= 30 // every


def test_a_call_of_a_function_does_not_outlast_its_time(shop):
    """It would return ``ok`` if it were waited for."""
    result = run_limited(shop, ONE_STEP, timeout_s=0.3)
    assert (result.status, result.error) == ("timeout", "the statement ran too long")
    assert run_limited(shop, "SELECT 1").rows == ((1,),)


def test_a_limit_of_steps_ends_a_statement_long_before_its_time(shop):
    started = time.monotonic()
    result = run_limited(shop, ENDLESS + "SELECT count(*) FROM c", timeout_s=60.0, max_steps=1_000_000)
    assert (result.status, result.error) == ("timeout", "the statement ran too long")
    assert time.monotonic() - started < 30.0
    assert run_limited(shop, "SELECT count(*) FROM customer", max_steps=1_000_000).status == "ok"


def test_databases_pass_on_their_limit_of_steps(shop):
    databases = copy.copy(Databases(shop.parent, max_steps=1_000_000))  # as it is pickled
    result = databases.run("shop", ENDLESS + "SELECT count(*) FROM c")
    assert result.status == "timeout"
    assert result.elapsed_s < 5.0  # its limit in seconds


def test_a_workflow_runs_model_written_sql_there(shop, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "vinelm.workflows.nl2sql.databases.run_limited", lambda path, sql, **_: asked.append(sql) or run_sql(path, sql)
    )
    Databases(shop.parent).run("shop", "SELECT 1")
    assert asked == ["SELECT 1"]


def test_too_much_memory_is_an_error(shop):
    sql = "WITH c AS MATERIALIZED (" + ENDLESS + "SELECT x || '" + "y" * 9000 + "' FROM c) SELECT count(*) FROM c"
    result = run_limited(shop, sql, timeout_s=60.0)
    assert (result.status, result.error) == ("error", "the statement took too much memory")


@pytest.mark.long
def test_many_values_are_cut(shop):
    columns = ", ".join(f"x + {n}" for n in range(1900))
    result = run_limited(shop, ENDLESS + f"SELECT {columns} FROM c LIMIT 4000", timeout_s=60.0)
    assert (result.status, result.is_truncated) == ("ok", True)
    assert len(result.rows) * 1900 <= 5_000_000


def test_a_file_at_fault_is_said_as_ever(shop, tmp_path):
    with pytest.raises(DatasetError, match=r"none\.sqlite: cannot read the database: No such file"):
        run_limited(tmp_path / "none.sqlite", "SELECT 1")
    writer = sqlite3.connect(shop, isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    with pytest.raises(DatasetError, match="locked: wait until its writer is done"):
        run_limited(shop, "SELECT 1 FROM customer")
    writer.close()
    assert run_limited(shop, "SELECT 1").rows == ((1,),)


def test_many_threads_get_their_own_answers(shop):
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda i: run_limited(shop, f"SELECT name, {i} FROM customer ORDER BY id").rows[0], range(100)))
    assert answers == [("Ann", i) for i in range(100)]


def test_a_killed_process_is_started_again(shop):
    run_limited(shop, "SELECT 1")
    process, idle = limited_sql.SESSIONS._process, list(limited_sql.SESSIONS._idle)
    for task in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        os.kill(int(task), signal.SIGKILL)
        while Path(f"/proc/{task}").exists():
            time.sleep(0.01)
    process.kill()
    process.wait()
    assert run_limited(shop, "SELECT 1").rows == ((1,),)
    assert all(session.fileno() < 0 for session in idle)


def test_a_forked_child_has_sessions_of_its_own(shop):
    """A child shares the process that forks, and takes no session that its parent uses."""
    program = f"""
import os
from pathlib import Path
from vinelm.workflows.nl2sql.limited_sql import SESSIONS, run_limited
shop = Path({str(shop)!r})
run_limited(shop, "SELECT 1")
process = SESSIONS._process.pid
children = []
for number in range(4):
    pid = os.fork()
    if pid == 0:
        answers = [run_limited(shop, f"SELECT {{number}}, {{i}}").rows for i in range(20)]
        is_shared = SESSIONS._process is None
        os._exit(0 if answers == [((number, i),) for i in range(20)] and is_shared else 1)
    children.append(pid)
codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
print(codes, run_limited(shop, "SELECT 7").rows, process == SESSIONS._process.pid, process)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    *said, process = done.stdout.split()
    assert " ".join(said) == "[0, 0, 0, 0] ((7,),) True"
    with pytest.raises(ProcessLookupError):
        os.kill(int(process), 0)


def test_it_ends_with_a_killed_application(shop):
    program = f"""
import time
from pathlib import Path
from vinelm.workflows.nl2sql.limited_sql import SESSIONS, run_limited
run_limited(Path({str(shop)!r}), "SELECT 1")
print(SESSIONS._process.pid, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as application:
        process = int(application.stdout.readline())
        application.send_signal(signal.SIGKILL)
    for _ in range(100):
        if not Path(f"/proc/{process}").exists():
            return
        time.sleep(0.1)
    pytest.fail("the process that runs SQL is left over")


def test_where_nothing_can_be_forked_it_runs_here(shop, monkeypatch):
    monkeypatch.setattr(limited_sql, "is_supported", lambda: False)
    monkeypatch.setattr(limited_sql, "SESSIONS", None)
    assert run_limited(shop, "SELECT 1").rows == ((1,),)
