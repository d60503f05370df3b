"""A recorded table that moves makes no store foreign; one that changes does."""

from kit.toys.profiling import ToyBackend, catalog_for, toy

from vinelm.catalog import Catalog
from vinelm.profiler.execution.fingerprint import store_identity


def identity(table):
    workflow = toy()
    catalog = catalog_for(workflow)
    named = Catalog(catalog.models, {"recorded": {"table": str(table), "id_column": "id"}})
    return store_identity(workflow, named, {"test": ToyBackend()})


def test_the_content_of_a_table_counts_and_not_its_place(tmp_path):
    one, moved, changed = (tmp_path / name for name in ("one.csv", "moved.csv", "changed.csv"))
    one.write_text("id,model\n1,a\n")
    moved.write_text("id,model\n1,a\n")
    changed.write_text("id,model\n1,b\n")
    assert identity(one).difference(identity(moved)) is None
    assert identity(one).difference(identity(changed)) == "the catalog changed since it was made"
    assert str(tmp_path) not in identity(one).to_json()
    settings = identity(one).settings().backends["recorded"]
    assert settings["table"].startswith("sha256:")
    assert settings["id_column"] == "id"
