"""A store with damaged text is one line that shows nothing of its contents."""

import pytest

from vinelm.errors import StoreError
from vinelm.traces import ObservationStore
from vinelm.traces.testing import an_identity


@pytest.mark.parametrize("spot", [b"CREATE TABLE observations", b'"catalog"', b"CREATE TABLE meta"])
def test_text_that_is_not_utf8_is_damage(tmp_path, spot):
    path = tmp_path / "a.db"
    ObservationStore.open_or_create(path, an_identity()).close()
    content = path.read_bytes()
    assert spot in content
    path.write_bytes(content.replace(spot, b"\xfa\xff" + spot[2:]))
    with pytest.raises(StoreError, match=r"^\S*a\.db: [^\n]*$") as raised:
        ObservationStore.open(path).close()
    assert "price" not in str(raised.value)
