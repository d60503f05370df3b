"""Reads an existing, unchanged LiteLLM configuration as a catalog.

Format: https://docs.litellm.ai/docs/proxy/configs. Settings of LiteLLM's proxy and router are ignored, because VineLM replaces
both. A note lists the ignored settings. Of the rest of the file only ``num_retries`` and the default timeout are used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from vinelm.catalog.litellm_entry import ListFile, limits_of, model_of
from vinelm.catalog.litellm_keys import is_left_out, is_rate, other_kind
from vinelm.catalog.litellm_prices import ASSUMED, OWN_SERVER, has_no_effect
from vinelm.catalog.model import Model
from vinelm.errors import ConfigError

SETTINGS = ("litellm_settings", "router_settings")
TAKEN = ("num_retries", "request_timeout", "timeout")
"""The keys of LiteLLM's sections (:data:`SETTINGS`) that are read."""
ROUTING = ("fallbacks", "context_window_fallbacks", "content_policy_fallbacks", "default_fallbacks", "model_group_alias")
"""The keys of LiteLLM's sections (:data:`SETTINGS`) that get a separate note."""
SHOWN = 3
"""How many entries a note names for one parameter; beyond that it gives only their number."""


@dataclass(frozen=True)
class ModelList:
    """The contents of a file with a ``model_list``.

    Args:
        path: The file.
        entries: The entries of chat models by unique name, each as the file has it.
        file: Facts about the file that apply to all entries: its path, its date, and its time limit of a call.
        max_retries: The file's ``num_retries``.
        notes: One line for each group of settings without effect.
        skipped: The names of entries that are not chat models.
        copies: The names of entries that were left out because they differ from another entry of the same name only in their
            key or limits.
    """

    path: str
    entries: Mapping[str, Mapping[str, Any]]
    file: ListFile
    max_retries: Any
    notes: tuple[str, ...]
    skipped: tuple[str, ...]
    copies: tuple[str, ...]

    def makers(self) -> list[Callable[[], Model]]:
        """Return, for each entry, a function that returns its model or raises :class:`ConfigError` if it cannot be used."""
        return [partial(model_of, item, name, self.file) for name, item in self.entries.items()]

    def backends(self, models: Sequence[Model]) -> dict[str, dict[str, Any]]:
        """Return each provider's settings from the file: ``max_retries``, and the rate ``limits`` of these models by engine."""
        found: dict[str, dict[str, Any]] = {}
        for model in models:
            if self.max_retries is not None:
                found.setdefault(model.provider, {})["max_retries"] = self.max_retries
            if limits := limits_of(self.entries[model.name]):
                found.setdefault(model.provider, {}).setdefault("limits", {})[model.engine] = limits
        return found

    def notes_on(self, models: Sequence[Model]) -> tuple[str, ...]:
        """Return remarks on the file, one line each, on settings without effect, models counted as $0, and assumed prices."""
        own = [model.name for model in models if model.price.source == OWN_SERVER]
        assumed = [model.name for model in models if model.price.source.startswith(ASSUMED)]
        more = []
        if own:
            more.append(f"{self.path}: counted as $0, as servers of your own: {', '.join(own)}: {_GIVE_A_PRICE}")
        if assumed:
            more.append(f"{self.path}: prices assumed from the models' names: {', '.join(assumed)}: {_GIVE_A_PRICE}")
        return (*self.notes, *more)


_GIVE_A_PRICE = "for other prices, add input_cost_per_token and output_cost_per_token to model_info"


def read_model_list(path: str | Path, text_of: Callable[[str | Path], str]) -> ModelList:
    """Read the ``model_list`` of a LiteLLM config and of the files that it includes.

    Entries of the same name, between which LiteLLM balances load, become separate models: the second is ``NAME-2``. Two kinds
    of entries are left out with a note: entries that differ from another entry of the same name only in key or limits, and
    entries that are not chat models.

    Args:
        path: The file, for error messages and for the date of its prices.
        text_of: Reads a file.

    Raises:
        ConfigError: The file is not YAML, or has no ``model_list`` with a chat model.
    """
    plain = _yaml(path, text_of(path))
    listed = [*_listed(plain, path), *_included(plain, path, text_of)]
    if not listed:
        raise ConfigError(f"{path}: has no model_list: is it a LiteLLM config?")
    chats, others = _chat_models(listed, path)
    if not chats:
        raise ConfigError(f"{path}: model_list has no chat model: {_summary(others)}")
    entries, copies = _named(chats)
    notes = [*_notes_on_entries(others, copies), *_routing_notes(plain), *_left_out(plain, entries)]
    file = ListFile(str(path), date.fromtimestamp(Path(path).stat().st_mtime), _setting(plain, "timeout", "request_timeout"))
    return ModelList(
        str(path),
        entries,
        file,
        _setting(plain, "num_retries"),
        notes=tuple(f"{path}: {note}" for note in notes),
        skipped=tuple(name for name, _ in others),
        copies=tuple(copies),
    )


def _yaml(path: str | Path, text: str) -> Any:
    import yaml  # type: ignore[import-untyped]

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)  # the error's own text may quote a key
        where = f", line {mark.line + 1}" if mark is not None else ""
    raise ConfigError(f"{path}{where}: not valid YAML")


def _listed(plain: Any, path: str | Path) -> list[Mapping[str, Any]]:
    listed = (plain.get("model_list") if isinstance(plain, dict) else None) or []
    if not isinstance(listed, list):
        raise ConfigError(f"{path}: has no model_list: is it a LiteLLM config?")
    for number, item in enumerate(listed, 1):
        if not isinstance(item, dict) or not isinstance(item.get("litellm_params"), dict):
            raise ConfigError(f"{path}: entry {number} of model_list has no litellm_params")
    return listed


def _included(plain: Any, path: str | Path, text_of: Callable[[str | Path], str]) -> Iterator[Mapping[str, Any]]:
    """Yield the entries of the ``model_list`` in each file that ``plain`` includes.

    Args:
        plain: The content of a file; its key ``include`` has one file name or several.
        path: That file, to whose folder the names are relative.
        text_of: Returns the text of a file.
    """
    names = (plain.get("include") if isinstance(plain, dict) else None) or []
    for name in [names] if isinstance(names, str) else names:
        other = Path(path).parent / str(name)
        yield from _listed(_yaml(other, text_of(other)), other)


def _chat_models(
    listed: Sequence[Mapping[str, Any]], path: str | Path
) -> tuple[list[Mapping[str, Any]], list[tuple[str, str]]]:
    """Split the entries of a ``model_list`` into those of chat models, and pairs (name, kind) for all others."""
    chats, others = [], []
    for item in listed:
        kind = other_kind(item)
        if kind is None:
            chats.append(item)
        else:
            others.append((str(item.get("model_name") or "?"), kind))
    return chats, others


def _named(chats: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Mapping[str, Any]], list[str]]:
    """Return the entries by unique names, and the names of entries that were left out as copies of another entry."""
    entries: dict[str, Mapping[str, Any]] = {}
    copies, seen = [], Counter[str]()
    for item in chats:
        name = str(item.get("model_name") or "?")
        if any(_is_copy(item, entries[_own(name, number)]) for number in range(1, seen[name] + 1)):
            copies.append(name)
            continue
        seen[name] += 1
        entries[_own(name, seen[name], entries)] = item
    return entries, copies


def _own(name: str, number: int, taken: Mapping[str, Any] | None = None) -> str:
    own = name if number == 1 else f"{name}-{number}"
    while taken is not None and own in taken:
        own += "-2"
    return own


def _is_copy(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two entries of a ``model_list`` differ only in key, limits, weight or id, which change neither answers nor
    prices.
    """
    return _what_counts(one) == _what_counts(other)


def _what_counts(item: Mapping[str, Any]) -> dict[str, Any]:
    not_counted = ("api_key", "rpm", "tpm", "max_parallel_requests")
    params = item["litellm_params"]
    kept = {key: value for key, value in params.items() if key not in not_counted and not is_left_out(str(key))}
    info = item.get("model_info")
    stated = info.items() if isinstance(info, dict) else ()
    prices = {key: value for key, value in stated if is_rate(str(key)) or key == "base_model"}
    return {**kept, "api_version": params.get("api_version"), "model_info": prices}


def _section(plain: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = plain.get(name)
    return found if isinstance(found, Mapping) else {}


def _setting(plain: Mapping[str, Any], *names: str) -> Any:
    """Return the value of the first of the settings ``names`` that the LiteLLM file ``plain`` sets; None if it sets none.

    The file's section for LiteLLM's router takes precedence over the section for its library.
    """
    places = [_section(plain, section).get(name) for section in reversed(SETTINGS) for name in names]
    return next((value for value in places if value is not None), None)


# -- what has no effect, one line for each group


def _summary(others: Sequence[tuple[str, str]]) -> str:
    counts = Counter(kind for _, kind in others)
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))


def _notes_on_entries(others: Sequence[tuple[str, str]], copies: Sequence[str]) -> Iterator[str]:
    if others:
        yield f"skipped, because they are no chat models ({_summary(others)}): {', '.join(name for name, _ in others)}"
    if copies:
        yield (
            f"skipped, because they differ from another deployment of that name only in key or limits: {', '.join(copies)}: "
            "VineLM needs each model once"
        )


def _routing_notes(plain: Mapping[str, Any]) -> Iterator[str]:
    """Yield notes on fallbacks and aliases, which VineLM handles differently from LiteLLM."""
    if any(_section(plain, section).get(key) for section in SETTINGS for key in ROUTING if key != "model_group_alias"):
        yield "fallbacks: VineLM itself chooses another model when one fails, among all models of the plan"
    for section in SETTINGS:
        alias = _section(plain, section).get("model_group_alias")
        for name, target in alias.items() if isinstance(alias, Mapping) else ():
            model = target.get("model") if isinstance(target, Mapping) else target
            yield f"{name!r} is only another name of {model!r}: use {model!r}"


def _left_out(plain: Mapping[str, Any], entries: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    names = list(_left_out_of_file(plain))
    users: dict[str, list[str]] = {}
    for own, item in entries.items():
        params, info = item["litellm_params"], item.get("model_info")
        rates = {key: value for key, value in info.items() if is_rate(str(key))} if isinstance(info, Mapping) else {}
        for key in {**rates, **params}:
            if _has_no_effect(str(key), {**rates, **params}):
                users.setdefault(str(key), []).append(own)
    for key, found in users.items():
        names += [f"{own}.{key}" for own in found] if len(found) <= SHOWN else [f"{key} of {len(found)} entries"]
    if names:
        yield f"has no effect here (see docs/fields.md#litellm-configyaml): {', '.join(names)}"


def _left_out_of_file(plain: Mapping[str, Any]) -> Iterator[str]:
    for name in plain:
        if name in SETTINGS:
            yield from (f"{name}.{key}" for key in _section(plain, name) if key not in TAKEN and key not in ROUTING)
        elif name not in ("model_list", "include"):
            yield str(name)


def _has_no_effect(key: str, params: Mapping[str, Any]) -> bool:
    if key == "api_version":
        return not str(params.get("model", "")).startswith("azure/") and params.get("custom_llm_provider") != "azure"
    return params[key] is not None and (has_no_effect(key, params) if is_rate(key) else is_left_out(key))
