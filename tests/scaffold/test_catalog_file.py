"""The models that a choice names."""

import pytest

from vinelm.errors import ConfigError
from vinelm.scaffold.catalog_file import chosen_models


@pytest.mark.parametrize(
    ("given", "meant"),
    [("gpt-5-mini", "openai:gpt-5-mini"), ("opnai", "openai"), ("simulatd", "simulated")],
)
def test_a_name_without_its_provider_and_a_slip_are_answered_with_the_name(given, meant):
    with pytest.raises(ConfigError, match=f"did you mean '{meant}'"):
        chosen_models([given])
