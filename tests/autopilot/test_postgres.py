"""Processes of a service that share a store in PostgreSQL."""

from kit.worlds.piloted import Service, equal
from kit.worlds.replays import models, truth

from vinelm.autopilot.status import status_of


def test_two_processes_share_one_proof_in_postgresql(postgres_url, monkeypatch):
    monkeypatch.setenv("VINELM_DRAW_SECRET", "a secret of sixteen characters")
    one, other = (Service(postgres_url, models(nano=equal, big=truth)) for _ in range(2))
    try:
        one.ask(range(210))
        other.ask(range(210, 420))
        for _ in range(2):
            one.look()
            other.look()
        state = one.look()
        assert state.plan == {"kind": "alone", "models": ["nano"]}
        one.ask(range(1000, 1200))
        other.ask(range(1200, 1400))
        one.look()
        other.look()
        assert one.look().share == other.look().share == 0.25
        (step,) = status_of(postgres_url).steps
        assert step.share == 0.25
        assert [one.pilot._pilot is None, other.pilot._pilot is None].count(False) == 1
    finally:
        one.vine.close()
        other.vine.close()
