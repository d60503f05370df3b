import pytest

from vinelm.catalog import Catalog, ReplicaGroup
from vinelm.errors import ConfigError

PRICE = {"input": 1.0, "output": 2.0, "source": "test", "as_of": "2026-01-01"}


def table(name, **fields):
    return {
        "name": name,
        "provider": "openai",
        "model": "qwen",
        "price": PRICE,
        "api_base": f"http://{name}:8000/v1",
        **fields,
    }


def catalog(*tables):
    return Catalog.from_dict({"model": list(tables)})


def test_entries_of_a_group_are_one_choice_and_survive_a_file():
    made = catalog(table("a", group="qwen"), table("other", model="x"), table("b", group="qwen"))
    assert list(made) == ["qwen", "other"]
    group = made["qwen"]
    assert isinstance(group, ReplicaGroup)
    assert (group.engine, [one.name for one in group.replicas]) == ("qwen", ["a", "b"])
    assert [one.name for one in made.entries] == ["a", "b", "other"]
    assert Catalog.from_dict(made.to_dict()) == made
    assert made.subset(("qwen",))["qwen"] == group


def test_eight_models_on_four_replicas_stay_eight_choices():
    made = catalog(*(table(f"m{m}-{r}", model=f"m{m}", group=f"m{m}") for m in range(8) for r in range(4)))
    assert len(made) == 8
    assert len(made.entries) == 32


def test_without_groups_a_catalog_is_written_as_before():
    (entry,) = catalog(table("a")).to_dict()["model"]
    assert "group" not in entry


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        ([table("a", group="g"), table("b", group="g", model="other")], "model of 'b' is not that of 'a'"),
        ([table("a", group="g"), table("b", group="g", provider="azure")], "provider of 'b' is not that of 'a'"),
        ([table("a", group="g"), table("b", group="g", price={**PRICE, "input": 3.0})], "price of 'b' is not that of 'a'"),
        ([table("a", group="g"), table("b", group="g", max_tokens=7)], "max_tokens of 'b' is not that of 'a'"),
        ([table("a", group="g", engine="e"), table("b", group="g", engine="e")], "two entries on engine 'e'"),
        ([table("a", group="g"), table("b", group="g", api_base=None)], "give an api_base to all of its entries, or to none"),
        ([table("a", group="b"), table("b", model="x")], "has the name of an entry that is not in it"),
        ([table("a", group="g"), table("b", model="x", engine="g")], "has the name of an engine"),
        ([table("a", group="g", engine="g")], "has the name of an engine"),
        ([table("a", group="")], "bad value for 'group'"),
    ],
)
def test_a_group_that_cannot_be_one_is_one_line(tables, says):
    with pytest.raises(ConfigError, match=says) as raised:
        catalog(*tables)
    assert "\n" not in str(raised.value)


def test_a_group_may_have_the_name_of_its_own_entry():
    assert list(catalog(table("qwen", group="qwen"), table("qwen-2", group="qwen"))) == ["qwen"]
