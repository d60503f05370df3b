"""A store of a replay that asks persons."""

import pytest
from kit.worlds.replays import LABELS, differs, models, recorded, truth

from vinelm.replay import replay


@pytest.fixture(scope="session")
def asking(tmp_path_factory):
    """Its proof waits for ten questions; not to be written to."""
    found = tmp_path_factory.mktemp("asking") / "a.db"
    rule = lambda number: LABELS[(number + 1) % 4] if differs(number, 0.05) else truth(number)  # noqa: E731
    assert replay(recorded(900), found, models(nano=rule), budget_usd=20).waiting == 10
    return found
