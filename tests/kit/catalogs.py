"""Small catalogs."""

import datetime

from vinelm.catalog import Catalog, Model, Price


def make_catalog(n_models: int = 2, **fields) -> Catalog:
    """Models m0, m1, ... on two engines, each dearer than the one before."""
    return Catalog(
        Model(
            **{
                "name": f"m{i}",
                "provider": "test",
                "model_id": f"test-{i}",
                "engine": ("east", "west")[i % 2],
                "price": Price(input=1.0 + i, output=4.0 * (1 + i), source="a test", as_of=datetime.date(2026, 1, 1)),
                **fields,
            }
        )
        for i in range(n_models)
    )


def local_entries(url: str, *names: str, key_env: str) -> str:
    """The entries of a catalog's file for models on a local server in the format of OpenAI."""
    return "".join(_LOCAL.format(name=name, url=url, key_env=key_env) for name in names)


_LOCAL = """
[[model]]
name = "{name}"
provider = "openai"
model = "{name}"
api_base = "{url}"
api_key_env = "{key_env}"
engine = "local"
max_tokens = 100
price = {{ input = 1.0, output = 4.0, source = "made up", as_of = "2026-01-01" }}
"""
