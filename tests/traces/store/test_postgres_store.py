"""The store in PostgreSQL: the contract of every store, and what only a server can get wrong."""

import threading
from contextlib import suppress
from pathlib import Path

import pytest
from kit.contracts.stores import StoreContract
from kit.servers.postgres_server import connected
from sqlalchemy import text

from vinelm.errors import StoreError
from vinelm.traces import ObservationStore, check_store, contents_of
from vinelm.traces.databases.address import PostgresUrl, address_of
from vinelm.traces.databases.schema import SCHEMA_VERSION
from vinelm.traces.testing import a_row, an_identity


@pytest.mark.long
class TestPostgresStore(StoreContract):
    """The contract."""

    @pytest.fixture(autouse=True)
    def _server(self, postgres_url):
        self.url = postgres_url

    def make(self, folder, identity):
        return ObservationStore.create(self.url, identity)

    def reopen(self, folder, identity=None):
        return ObservationStore.open(self.url, identity)


def test_an_address_is_told_from_a_file_and_shows_no_password():
    assert address_of("runs/a.db") == Path("runs/a.db")
    url = address_of("postgresql://ann:secret@db.example:5433/traces?options=-csearch_path%3Dtoy")
    assert isinstance(url, PostgresUrl)
    assert str(url) == "postgresql://ann@db.example:5433/traces"
    assert url.url.query == {"options": "-csearch_path=toy"}
    assert address_of(Path("postgresql://ann:secret@db.example:5433/traces")) == address_of(
        "postgresql://ann:secret@db.example:5433/traces"
    )
    with pytest.raises(StoreError, match="not an address") as caught:
        address_of("postgresql://ann:secret@db:port/traces")
    assert "secret" not in str(caught.value)


def test_a_server_that_is_not_there_is_one_line_without_the_password():
    pytest.importorskip("psycopg")
    with pytest.raises(StoreError, match="the server cannot be reached: start it") as caught:
        ObservationStore.open("postgresql://ann:secret@127.0.0.1:1/none")
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_commands_that_take_files_say_so():
    pytest.importorskip("psycopg")
    with pytest.raises(StoreError, match="store check takes files only"):
        check_store(Path("postgresql://ann@db.example/traces"))


@pytest.mark.long
def test_a_schema_without_a_store_is_refused(postgres_url):
    with pytest.raises(StoreError, match="no such store: profile"):
        ObservationStore.open(postgres_url)
    with connected(postgres_url) as connection:
        connection.execute("CREATE TABLE songs (title text)")
    with pytest.raises(StoreError, match="a database with other tables, not an observation store"):
        ObservationStore.open_or_create(postgres_url, an_identity())


@pytest.mark.long
def test_a_newer_store_and_another_workflows_store_are_refused(postgres_url):
    ObservationStore.create(postgres_url, an_identity()).close()
    with pytest.raises(StoreError, match="the workflow 'toy', not 'other'"):
        ObservationStore.open_or_create(postgres_url, an_identity(workflow="other"))
    with connected(postgres_url) as connection:
        connection.execute("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    with pytest.raises(StoreError, match=f"store version 99, this one reads {SCHEMA_VERSION}"):
        ObservationStore.open(postgres_url)


@pytest.mark.long
def test_two_runs_that_create_one_store_get_one(postgres_url):
    stores, errors = [], []

    def create():
        try:
            stores.append(ObservationStore.open_or_create(postgres_url, an_identity()))
        except StoreError as error:
            errors.append(error)

    threads = [threading.Thread(target=create) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    for store in stores:
        assert store.identity_id == 1
        store.close()


@pytest.mark.long
def test_scores_and_flags_share_a_column(postgres_url):
    rows = [a_row("a", success=True), a_row("b", success=0.25), a_row("c", success=None), a_row("d", success=False)]
    with ObservationStore.create(postgres_url, an_identity()) as store:
        store.add(rows[0])
        store.add(rows[1])
        store.add_many(rows[2:])
        assert store.observations() == rows
        assert [type(row.success) for row in store.observations()] == [bool, float, type(None), bool]
        contents = contents_of(store)
        assert (contents.requests_observed, contents.committed_usd, contents.held_by) == (4, 0.5, None)
        assert contents.size_bytes > 0


@pytest.mark.long
def test_a_server_that_goes_away_in_a_transaction_is_one_line_and_keeps_what_was_committed(postgres_server):
    store = ObservationStore.create(postgres_server.url, an_identity())
    store.add(a_row("q1"))
    words = "the server cannot be reached: start it and run the same line again"

    def write_two():
        with store.database.transaction():
            store.add(a_row("q2"))
            postgres_server.stop()
            store.add(a_row("q3"))

    with pytest.raises(StoreError, match=words) as caught:
        write_two()
    assert "\n" not in str(caught.value)
    assert caught.value.code == "store-unreachable"
    with pytest.raises(StoreError, match="cannot be reached"):
        len(store)
    store.close()
    postgres_server.start()
    with ObservationStore.open(postgres_server.url) as store:
        assert store.observations() == [a_row("q1")]


def test_whoever_writes_after_a_connection_was_lost_in_the_same_transaction_gets_the_same_advice(postgres_url):
    with ObservationStore.create(postgres_url, an_identity()) as store:
        database = store.database
        with suppress(StoreError), database.transaction() as connection:
            pid = connection.execute(text("SELECT pg_backend_pid()")).scalar()
            with connected(postgres_url) as other:
                other.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
            for _ in range(2):  # as of two writers that share a transaction
                with pytest.raises(StoreError, match="run the same line again") as caught, database.transaction() as again:
                    again.execute(text("SELECT 1"))
                assert "\n" not in str(caught.value)
