"""The conditions under which a row (a stored result) was made: the code and settings of each call in its prefix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vinelm.template import Stage
from vinelm.traces.databases.identity import StoreIdentity

_MODEL_KEEPS_ROWS = ("name", "price", "price_id", "engine", "api_key_env", "timeout_s", "group")
"""The fields of a catalog entry that do not change what is sent to the model."""
_OPTION_KEEPS_ROWS = ("timeout", "request_timeout", "max_retries")
_BACKEND_KEEPS_ROWS = ("limits", "max_retries", "backoff_s", "max_wait_s", "stream", "real_time", "send_priority")
_SCORER = "scorer"
_STAGE = "stage "


class RowConditions:
    """Decides whether stored rows are still valid after a store's identity (its workflow, models and data) has changed.

    A row stays valid only if its sequence of stages and models is still possible. The settings sent to its models and the code
    of its stages must also be unchanged, and so must the code and resources shared by all stages. Prices, rate limits,
    timeouts, other models and later stages do not count.

    Args:
        before: the identity under which rows were executed.
        now: the current identity.
    """

    def __init__(self, before: StoreIdentity, now: StoreIdentity) -> None:
        self._before, self._now = before, now
        self._template_before, self._template = before.bound_template(), now.bound_template()
        self._shared = _shared_difference(before.fingerprint, now.fingerprint)
        self._models: dict[str, str | None] = {}
        self._prefixes: dict[tuple[tuple[str, ...], tuple[str | None, ...]], str | None] = {}

    def difference(self, prefix: Sequence[str], stages: Sequence[str | None] = ()) -> str | None:
        """Return the first difference that makes a row with this prefix invalid; None if the row is valid.

        Args:
            prefix: the models of the row's calls.
            stages: the stages of these calls; None if unknown.
        """
        key = tuple(prefix), self._template_before.stages_along(len(prefix), stages)
        if key not in self._prefixes:
            self._prefixes[key] = self._difference(*key)
        return self._prefixes[key]

    def arm_difference(
        self, stages: Sequence[str | None], arm: str | None, *, failure: str | None, has_ended: bool
    ) -> str | None:
        """Return why the stage that came next after a row may no longer follow it; None if it may.

        Also None if the request ended at the row, or if the stage of one of the row's calls is unknown.

        Args:
            stages: the stages of the row's calls.
            arm: the stage that came next; None if there was none or it is unknown.
            failure: the kind of the row's failure. A row that failed because the template lacked a branch is valid until the
                template changes.
            has_ended: whether the request ended at the row.
        """
        if failure == "unexpected_arm" and self._template_before != self._template:
            return "the template changed, which had no arm for them"
        if has_ended or None in stages:
            return None
        known = [str(stage) for stage in stages]
        arms = [stage.name for stage in self._template.arms_after(known)]
        if arm is None and len(arms) > 1:
            return "the template branches now, and the row does not say which stage came next"
        return f"the template has no arm {arm!r} after {' > '.join(known)}" if arm and arms and arm not in arms else None

    def scoring_difference(self, stages: Sequence[str | None]) -> str | None:
        """Return why rows whose calls have these stages must be scored again; None if their scores are valid."""
        if self._before.fingerprint.get(_SCORER) != self._now.fingerprint.get(_SCORER):
            return "the scorer changed"
        name = str(self._template_before.stages_along(len(stages), stages)[-1])
        before, now = self._template_before.stage(name), self._template.stage(name)
        if before.answerable != now.answerable:
            return f"stage {now.name!r} is {'now' if now.answerable else 'no longer'} answerable"
        return None

    def _difference(self, prefix: tuple[str, ...], stages: tuple[str | None, ...]) -> str | None:
        if self._shared is not None:
            return self._shared
        if len(prefix) > self._template.depth:
            return f"the template has only {self._template.depth} invocations"
        for position, (model, stage) in enumerate(zip(prefix, stages, strict=True)):
            if stage is None:
                continue  # the row of that invocation is missing, as after an import
            now = self._stage_now(position, stage)
            if now is None or stage != now.name:
                there = f"of stage {now.name!r}, " if now is not None else ""
                return f"invocation {position + 1} is {there}not {'' if there else 'of '}{stage!r}"
            if model not in (now.models or ()):
                return f"stage {now.name!r} no longer runs on model {model!r}"
            part = f"{_STAGE}{now.name}"
            if self._before.fingerprint.get(part) != self._now.fingerprint.get(part):
                return f"the code of stage {now.name!r} changed"
            changed = self._model_difference(model)
            if changed is not None:
                return changed
        return None

    def _stage_now(self, position: int, stage: str) -> Stage | None:
        """Return the current template's stage for a call that was made at ``position`` (from 0) as a call of ``stage``.

        It is ``stage`` itself if the template allows it there, else the only possible stage; None if there are several.
        """
        level = self._template.flow.stages_at[position]
        if stage not in level and len(level) > 1:
            return None
        return self._template.stage(stage if stage in level else next(iter(level)))

    def _model_difference(self, name: str) -> str | None:
        if name not in self._models:
            self._models[name] = _differing(
                f"model {name!r}", _deciding_settings(self._before, name), _deciding_settings(self._now, name)
            )
        return self._models[name]


def _shared_difference(before: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """Return the first difference in the parts on which all rows depend: graph, tools, routes, inputs, resources, seeds.

    None if there is no difference.
    """

    def shared(parts: Mapping[str, str]) -> dict[str, str]:
        return {part: digest for part, digest in parts.items() if part != _SCORER and not part.startswith(_STAGE)}

    mine, theirs = shared(before), shared(now)
    changed = sorted(part for part in {*mine, *theirs} if mine.get(part) != theirs.get(part))
    return f"the workflow changed ({', '.join(changed)})" if changed else None


def _deciding_settings(identity: StoreIdentity, name: str) -> dict[str, Any]:
    """Return the settings of a model and its provider that determine its answers, as plain values."""
    catalog = identity.settings()
    model = catalog[name].model_dump(mode="json", exclude=set(_MODEL_KEEPS_ROWS))
    options = {f"options.{key}": value for key, value in model.pop("options").items() if key not in _OPTION_KEEPS_ROWS}
    backend = catalog.backends.get(catalog[name].provider, {})
    settings = {f"[backend] {key}": value for key, value in backend.items() if key not in _BACKEND_KEEPS_ROWS}
    return {**model, **options, **settings}


def _differing(whose: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    if not names:
        return None
    words = [f"{name} {_word(now.get(name))} instead of {_word(before.get(name))}" for name in names]
    return f"{whose} has other settings ({', '.join(words)})"


def _word(value: Any) -> str:
    return "none" if value is None else str(value) if len(str(value)) <= 40 else "(changed)"
