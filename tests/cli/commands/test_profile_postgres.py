"""`vinelm profile` on a store in PostgreSQL: what cannot be done is one line and exit code 2."""

import pytest
from kit.servers.postgres_server import connected, postgres_server_url, postgres_url  # noqa: F401 - fixtures

from vinelm.cli.main import main
from vinelm.traces import ObservationStore
from vinelm.traces.testing import an_identity

pytestmark = pytest.mark.long


def last_line(capsys):
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.usefixtures("shop")
def test_what_cannot_be_done_is_one_line_and_exit_2(postgres_url, tmp_path, capsys):  # noqa: F811
    line = ["profile", "nl2sql", "--dataset", "data", "--isolation", "inline", "--store"]
    assert main([*line, postgres_url, "--budget-calls", "6", "--checkpoints", "kept"]) == 3  # the budget is reached
    capsys.readouterr()
    with ObservationStore.open(postgres_url) as store:
        rows = store.observations()
        assert len(rows) == 6
        states = [store.checkpoint(row.request_id, row.prefix) for row in rows if row.failure is None]
        assert states
        assert None not in states
    assert main(["profile", "support", "--store", postgres_url, "--coverage", "0.001"]) == 2
    assert "it belongs to the workflow 'nl2sql', not 'support': use another store" in last_line(capsys)
    assert main([*line, postgres_url, "--budget-calls", "6", "--checkpoints", "other"]) == 2
    assert "its checkpoints are kept under file://" in last_line(capsys)
    with connected(postgres_url) as connection:
        connection.execute("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    assert main([*line, postgres_url, "--budget-calls", "9"]) == 2
    assert "written by a newer VineLM (store version 99" in last_line(capsys)
    assert main([*line, "postgresql://ann:secret@127.0.0.1:1/none", "--budget-calls", "9"]) == 2
    told = last_line(capsys)
    assert "the server cannot be reached: start it and run the same line again" in told
    assert "secret" not in told


def test_two_workflows_on_one_file_are_one_line_and_exit_2(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    ObservationStore.create(tmp_path / "s.db", an_identity()).close()
    assert main(["profile", "support", "--store", "s.db", "--coverage", "0.001"]) == 2
    assert "s.db: it belongs to the workflow 'toy', not 'support': use another store" in last_line(capsys)
