"""A gateway under an autopilot: every client of a base_url, and what answers is proven."""

import re

import pytest
from kit.servers.gateways import KEY, KEY_ENV, PRICE, entries, running
from kit.wire.openai_format import answering
from kit.wire.server import WireServer, end_connections
from kit.worlds.replays import truth

from vinelm.autopilot import Autopilot
from vinelm.autopilot import autopilot as threads
from vinelm.catalog import Catalog

pytestmark = pytest.mark.long


@pytest.fixture
def upstream(monkeypatch):
    """A server whose models all give the right label of ``Question N``."""
    monkeypatch.setenv(KEY_ENV, KEY)
    server = WireServer()

    async def reply(asked, out):
        number = int(re.findall(r"Question (\d+)", asked.body.decode())[-1])
        return await answering(truth(number))(asked, out)

    yield server.answers(reply)
    end_connections()
    server.stop()


def test_one_changed_setting_then_a_cheaper_model(upstream, tmp_path):
    half = {name: value / 2 if isinstance(value, float) else value for name, value in PRICE.items()}
    models = [*entries(upstream.url, "big"), {**entries(upstream.url, "small")[0], "price": half}]
    pilot = Autopilot(tmp_path / "pilot.db", max_loss=3.0, shadow_usd_per_day=10.0, every_s=36_000.0, pause_s=0.0)

    def look():
        pilot._look()
        pilot._looks += threads.SETTLED_S
        pilot._look()
        pilot._go_on()
        pilot._look()
        (state,) = pilot._states.values()
        return state

    with running(Catalog.from_dict({"model": models}), more={"autopilot": pilot}) as gateway, gateway.client() as client:

        def ask(number):
            messages = [{"role": "system", "content": "Sort it."}, {"role": "user", "content": f"Question {number}"}]
            raw = client.chat.completions.with_raw_response.create(model="big", messages=messages)
            return raw.parse().choices[0].message.content, raw.headers["x-vinelm-model"]

        for number in range(420):
            assert ask(number) == (truth(number), "big")
        look()
        state = look()
        assert (state.plan, state.share) == ({"kind": "alone", "models": ["small"]}, 0.05)
        for start in (1000, 2000):
            for number in range(start, start + 320):
                ask(number)
            state = look()
        assert state.share == 0.95
        found = [ask(number) for number in range(5000, 5040)]
        assert [said for said, _ in found] == [truth(number) for number in range(5000, 5040)]
        assert {model for _, model in found} >= {"small"}
        asked = [{"role": "system", "content": "Sort it."}, {"role": "user", "content": "Question 7"}]
        chunks = list(client.chat.completions.create(model="big", messages=asked, stream=True))
        assert "".join(one.choices[0].delta.content or "" for one in chunks if one.choices) == truth(7)
