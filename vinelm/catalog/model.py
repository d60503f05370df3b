"""Catalog entries: one model with its price, and groups of entries that serve the same model at several endpoints."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, field_validator, model_serializer

from vinelm.errors import ConfigError
from vinelm.template.steps import SKIP

MOST_TOKENS = 100_000_000
"""The largest ``max_tokens``: more than any model writes."""
LONGEST_S = 86_400.0
"""The longest ``timeout_s``, a day."""
CACHE_TTL_S = 300.0
"""Seconds that a prompt cache keeps a prefix after its last use, if the price does not say: the shortest time on offer."""
WRITE_FACTOR = 1.25
"""Cost of writing a token to a prompt cache, as a multiple of plain input, if the price does not say."""
WRITE_1H_FACTOR = 2.0
"""Cost of writing a token to a prompt cache for an hour, as a multiple of plain input, if the price does not say."""
AUDIO_FACTOR = 17.0
"""Cost of a token of sound, as a multiple of a token of text, if the price does not say: the highest among OpenAI's models."""


def _foreign(value: Any) -> str:
    """Return a description of the first nested value that JSON cannot represent, such as ``"the number nan"`` or ``"a date"``;
    "" if there is none.
    """
    if isinstance(value, dict):
        return next((found for item in value.values() if (found := _foreign(item))), "")
    if isinstance(value, list | tuple):
        return next((found for item in value if (found := _foreign(item))), "")
    if isinstance(value, float) and not math.isfinite(value):
        return f"the number {value}"
    return "" if value is None or isinstance(value, str | bool | int | float) else f"a {type(value).__name__}"


class LongPromptRates(BaseModel):
    """Rates for all tokens of a call with a long prompt, in dollars per million tokens.

    A rate that is None is taken from the ordinary price. Cache rates keep their ratio to the input rate: if only a higher
    ``input`` is given, the cache rates rise in proportion.

    Args:
        above: The rates apply if the prompt has more tokens than this, >= 1.
        input: Prompt tokens.
        output: Completion tokens.
        cached: Prompt tokens read from a prompt cache.
        cache_write: Prompt tokens written to a prompt cache.
        cache_write_1h: Prompt tokens written to a prompt cache for an hour.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    above: int = Field(ge=1, strict=True)
    input: float | None = Field(default=None, ge=0, allow_inf_nan=False, strict=True)
    output: float | None = Field(default=None, ge=0, allow_inf_nan=False, strict=True)
    cached: float | None = Field(default=None, ge=0, allow_inf_nan=False, strict=True)
    cache_write: float | None = Field(default=None, ge=0, allow_inf_nan=False, strict=True)
    cache_write_1h: float | None = Field(default=None, ge=0, allow_inf_nan=False, strict=True)


class _Rates(NamedTuple):
    """The rates for one prompt length, in dollars per million tokens.

    ``names_write`` and ``names_1h`` tell whether the price itself states the rates ``cache_write`` and ``cache_write_1h``. If
    it does not, a rate is assumed.
    """

    input: float
    output: float
    cached: float
    cache_write: float
    cache_write_1h: float
    names_write: bool
    names_1h: bool


class Price(BaseModel):
    """The price of a model in dollars per million tokens.

    For a rate that is not given, a high value is assumed, so that no call is recorded at less than its bill.

    Args:
        input: Dollars per million prompt tokens, >= 0.
        output: Dollars per million completion tokens, >= 0.
        cached: Dollars per million prompt tokens read from a prompt cache; None charges ``input``.
        cache_write: Dollars per million prompt tokens written to a prompt cache; None charges 1.25 times ``input``.
        cache_write_1h: Dollars per million prompt tokens written to a prompt cache for an hour; None charges twice ``input``,
            or ``cache_write`` if that is more.
        audio: Dollars per million prompt tokens of audio; None charges 17 times ``input``.
        audio_out: Dollars per million completion tokens of audio; None charges 17 times ``output``.
        cache_ttl_s: Seconds that a cached prefix is kept after its last use, > 0; None takes 300. Used only to
            estimate how often the prompt cache of a service is warm; charges do not depend on it.
        long_prompts: Other rates for long prompts, by ascending thresholds.
        call: Dollars per call, in addition to the tokens.
        source: The source of the figures.
        as_of: The day on which the figures were read.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: float = Field(ge=0, allow_inf_nan=False, strict=True)
    output: float = Field(ge=0, allow_inf_nan=False, strict=True)
    cached: float | None = Field(default=None, ge=0, allow_inf_nan=False, strict=True)
    cache_write: float | None = Field(default=None, ge=0, allow_inf_nan=False, strict=True)
    cache_write_1h: float | None = Field(default=None, ge=0, allow_inf_nan=False, strict=True)
    audio: float | None = Field(default=None, ge=0, allow_inf_nan=False, strict=True)
    audio_out: float | None = Field(default=None, ge=0, allow_inf_nan=False, strict=True)
    cache_ttl_s: float | None = Field(default=None, gt=0, allow_inf_nan=False, strict=True)
    long_prompts: tuple[LongPromptRates, ...] = ()
    call: float = Field(default=0.0, ge=0, allow_inf_nan=False, strict=True)
    source: str
    as_of: date

    def cost_usd(
        self,
        tokens_in: int,
        tokens_out: int,
        tokens_cached: int = 0,
        tokens_written: int = 0,
        tokens_written_1h: int = 0,
        *,
        tokens_audio: int = 0,
        tokens_audio_out: int = 0,
    ) -> float:
        """Return the cost of one call in dollars.

        Args:
            tokens_in: All tokens of the prompt.
            tokens_out: All tokens of the answer.
            tokens_cached: The part of ``tokens_in`` that was read from a prompt cache.
            tokens_written: The part of ``tokens_in`` that was written to a prompt cache.
            tokens_written_1h: The part of ``tokens_written`` that is kept for an hour.
            tokens_audio: The part of ``tokens_in`` that is audio.
            tokens_audio_out: The part of ``tokens_out`` that is audio.
        """
        rates = self._rates(tokens_in)
        fresh = max(tokens_in - tokens_cached - tokens_written, 0)
        dollars = fresh * rates.input + tokens_cached * rates.cached + tokens_out * rates.output
        dollars += (tokens_written - tokens_written_1h) * rates.cache_write + tokens_written_1h * rates.cache_write_1h
        if tokens_audio or tokens_audio_out:  # in addition to the rate of text, whatever part of them came from a cache
            audio, audio_out = self._of_sound(rates)
            dollars += tokens_audio * (audio - rates.input) + tokens_audio_out * (audio_out - rates.output)
        return self.call + dollars / 1e6

    def _of_sound(self, rates: _Rates) -> tuple[float, float]:
        """Return the rates for audio in prompts and for audio in answers. They are never below the rates for text."""
        audio = AUDIO_FACTOR * rates.input if self.audio is None else self.audio
        audio_out = AUDIO_FACTOR * rates.output if self.audio_out is None else self.audio_out
        return max(audio, rates.input), max(audio_out, rates.output)

    def most_usd(
        self,
        tokens_in: int,
        tokens_out: int,
        *,
        writes_cache: bool = False,
        asks_for_an_hour: bool = False,
        hears: bool = False,
        speaks: bool = False,
    ) -> float:
        """Return the maximum cost in dollars of one call with at most these numbers of tokens, however a cache is used.

        Args:
            tokens_in: The maximum number of tokens of the prompt.
            tokens_out: The maximum number of tokens of the answer.
            writes_cache: Whether the call requests that the prompt be written to a prompt cache.
            asks_for_an_hour: Whether the call requests that the prompt be kept there for an hour. If not, the rate for an hour
                still counts for a written prompt if the price states that rate.
            hears: Whether a part of the prompt is audio.
            speaks: Whether a part of the answer may be audio.
        """
        lengths = {0, tokens_in, *(long.above + 1 for long in self.long_prompts if long.above < tokens_in)}
        reached = [self._rates(length) for length in lengths]
        dearest = [rate for one in reached for rate in (one.input, one.cached)]
        if writes_cache or asks_for_an_hour:
            dearest += [one.cache_write for one in reached]
            dearest += [one.cache_write_1h for one in reached if asks_for_an_hour or one.names_1h]
        of_sound = [self._of_sound(one) for one in reached]
        dearest += [audio for audio, _ in of_sound if hears]
        dearest_out = max(audio_out if speaks else one.output for one, (_, audio_out) in zip(reached, of_sound, strict=True))
        return self.call + (tokens_in * max(dearest) + tokens_out * dearest_out) / 1e6

    def in_batches(self, *, halves_cache: bool) -> Price:
        """Return the price of calls in a batch: half of the rates for input and output, and half of those for long prompts.

        ``halves_cache`` tells whether reading and writing a prompt cache also costs half. If not, the cache rates, given or
        assumed, stay unchanged, except that the rate for reading is never above the halved rate for input.
        """
        halved = {"input", "output"} | ({"cached", "cache_write", "cache_write_1h"} if halves_cache else set())

        def half(rates: Price | LongPromptRates, full: _Rates) -> dict[str, float]:
            given = {name: getattr(rates, name) for name in LongPromptRates.model_fields if name != "above"}
            if not halves_cache:
                given |= {"cache_write": full.cache_write, "cache_write_1h": full.cache_write_1h}
            found = {name: rate / 2 if name in halved else rate for name, rate in given.items() if rate is not None}
            if "cached" in found and "input" in found:
                found["cached"] = min(found["cached"], found["input"])
            return found

        long = tuple(one.model_copy(update=half(one, self._rates(one.above + 1))) for one in self.long_prompts)
        return self.model_copy(update={**half(self, self._rates(0)), "long_prompts": long})

    def cache_saves_usd(self, tokens_in: int, tokens: float) -> float:
        """Return by how many dollars a call is cheaper if ``tokens`` of its ``tokens_in`` prompt tokens are read from a prompt
        cache.

        The cost is compared with a call that reads nothing from the cache. That call pays the ordinary rate for these
        tokens or, if the price states a higher rate for writing to the cache, that rate.
        """
        rates = self._rates(tokens_in)
        cold = max(rates.input, rates.cache_write) if rates.names_write else rates.input
        return min(int(tokens), tokens_in) * (cold - rates.cached) / 1e6

    def _rates(self, tokens_in: int) -> _Rates:
        """Return the rates for a prompt of ``tokens_in`` tokens. For a rate that the price does not state, a high value is
        assumed.
        """
        if not self.long_prompts:  # true of nearly every price, and checked for every call
            write, hour, read = self.cache_write, self.cache_write_1h, self.cached
            dearer = WRITE_FACTOR * self.input if write is None else write
            return _Rates(
                self.input,
                self.output,
                self.input if read is None else read,
                dearer,
                max(WRITE_1H_FACTOR * self.input, dearer) if hour is None else hour,
                write is not None,
                hour is not None,
            )
        levels: list[Price | LongPromptRates] = [self, *(long for long in self.long_prompts if tokens_in > long.above)]

        def named(name: str) -> tuple[int, float | None]:
            """Return the index of the highest level that sets the rate ``name``, and the rate; (0, None) if no level sets it.

            Level 0 is the price; the next levels are the long-prompt rates that apply, by ascending threshold.
            """
            return next(
                ((at, rate) for at in range(len(levels))[::-1] if (rate := getattr(levels[at], name)) is not None), (0, None)
            )

        at_input, rate_in = named("input")
        assert rate_in is not None

        def of_cache(name: str, otherwise: float) -> float:
            at, rate = named(name)
            if rate is None:
                return otherwise
            below = next(one.input for one in levels[at::-1] if one.input is not None)
            return rate if at >= at_input or not below else rate * max(rate_in / below, 1.0)

        write = of_cache("cache_write", WRITE_FACTOR * rate_in)
        write_1h = of_cache("cache_write_1h", max(WRITE_1H_FACTOR * rate_in, write))
        names = (named(name)[1] is not None for name in ("cache_write", "cache_write_1h"))
        return _Rates(rate_in, named("output")[1] or 0.0, of_cache("cached", rate_in), write, write_1h, *names)

    @model_serializer(mode="wrap")
    def _without_what_is_not_set(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the price as JSON types. Fields that older versions did not have are left out if they are not set, so that old
        and new files agree.
        """
        plain: dict[str, Any] = handler(self)
        return {key: value for key, value in plain.items() if key not in _LATER_RATES or value}


_LATER_RATES = ("cache_write", "cache_write_1h", "audio", "audio_out", "cache_ttl_s", "long_prompts")


class Model(BaseModel):
    """One entry of a catalog: a model at one endpoint, with its price. The same model at two endpoints is two entries (VineLM
    paper §4.5).

    Args:
        name: The name in plans and reports; unique in its catalog.
        provider: The backend that calls it.
        model_id: The provider's id of the model.
        price: Dollars per million tokens.
        price_id: ``PROVIDER/MODEL`` of the list price; None if ``price`` was given.
        engine: The endpoint. All entries of one endpoint share its load and its limits.
        api_base: The URL of the endpoint; None takes the provider's default.
        api_key_env: The environment variable that contains the API key. The key itself is never stored.
        max_tokens: The longest answer of a call in tokens, 1 to 100,000,000; a longer answer is cut off and counts as failed.
        timeout_s: The maximum seconds of one attempt, from connecting to the last byte; > 0, at most a day.
        options: Settings of the provider, passed on unchanged. A catalog rejects secrets in them.
        trusted_counts: Whether to accept the server's token counts even if the text seems too long for them.
        cache_points: Which prefixes are marked for the provider's cache: with ``"auto"`` the prefixes that are read often
            enough to pay, with ``"static"`` the part that all calls of a stage share, with ``"off"`` none. Prompts with the
            application's own marks stay unchanged.
        group: The name of the entry's group of replicas: one model at several endpoints, which counts as one model. None for an
            entry without replicas.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    name: str = Field(min_length=1)
    provider: str = Field(min_length=1)
    model_id: str = Field(min_length=1)
    price: Price
    price_id: str | None = None
    engine: str = Field(min_length=1)
    api_base: str | None = None
    api_key_env: str | None = None
    max_tokens: int = Field(default=1024, ge=1, le=MOST_TOKENS, strict=True)
    timeout_s: float = Field(default=120.0, gt=0, le=LONGEST_S, strict=True)
    options: dict[str, Any] = Field(default_factory=dict)
    trusted_counts: bool = Field(default=False, strict=True)
    cache_points: Literal["off", "static", "auto"] = "off"
    group: str | None = Field(default=None, min_length=1)

    @field_validator("options")
    @classmethod
    def _plain(cls, options: dict[str, Any]) -> dict[str, Any]:
        """Check that JSON can represent the options; TOML dates and times, NaN and infinity raise :class:`ValueError`."""
        for key, value in options.items():
            found = _foreign(value)
            if found:
                raise ValueError(f"option {key!r} holds {found}: write it as a text, or as a finite number")
        return options

    @property
    def prompt_cache(self) -> tuple[str, str]:
        """The engine and the model id, which identify the prompt cache: calls with equal pairs share a cache."""
        return self.engine, self.model_id

    @model_serializer(mode="wrap")
    def _without_no_group(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the entry as JSON types. Fields that older versions did not have are left out if they are not set, so that old
        and new files agree.
        """
        plain: dict[str, Any] = handler(self)
        unset = {"group": None, "trusted_counts": False, "cache_points": "off"}
        return {key: value for key, value in plain.items() if key not in unset or value != unset[key]}


_FREE = Price(input=0.0, output=0.0, source=SKIP, as_of=date(2026, 1, 1))
SKIPPED = Model(name=SKIP, provider=SKIP, model_id=SKIP, engine=SKIP, price=_FREE)
"""The catalog's entry for leaving a stage out. No call is ever made with it."""
OWN_OF_A_REPLICA = ("name", "engine", "api_base", "api_key_env", "price_id")
"""The fields in which the entries of a group may differ."""
MOST_REPLICAS = 200


class ReplicaGroup(Model):
    """A model that several catalog entries, its replicas, serve at different endpoints. It counts as one model.

    Tries and plans use only the group; the replica is chosen for each call. The group's fields are those of the first replica,
    except that ``name`` and ``engine`` are the group's name. The load of a group is the load of all its replicas together.

    Args:
        replicas: the entries, in the order of the catalog.
    """

    replicas: tuple[Model, ...] = Field(exclude=True)

    @classmethod
    def of(cls, replicas: Sequence[Model]) -> ReplicaGroup:
        """Return the group of these entries, which name the same ``group``.

        Raises:
            ConfigError: The entries differ in settings that decide answers or prices, share an engine, or are too many.
        """
        first, group = replicas[0], str(replicas[0].group)
        if len(replicas) > MOST_REPLICAS:
            raise ConfigError(f"group {group!r} has {len(replicas)} entries: the most is {MOST_REPLICAS}")
        for other in replicas[1:]:
            for key in _fixed(first):
                if getattr(other, key) != getattr(first, key):
                    raise ConfigError(
                        f"group {group!r}: {_word(key)} of {other.name!r} is not that of {first.name!r}: entries of a "
                        "group may differ in name, engine, api_base and api_key_env"
                    )
            if (other.api_base is None) != (first.api_base is None):
                raise ConfigError(f"group {group!r}: give an api_base to all of its entries, or to none")
        engines = [replica.engine for replica in replicas]
        for replica in replicas:
            if engines.count(replica.engine) > 1:
                raise ConfigError(
                    f"group {group!r} has two entries on engine {replica.engine!r}: give each an engine of its own"
                )
            if replica.engine == group:
                raise ConfigError(f"group {group!r} has the name of an engine: give the group or the engine another name")
        return cls(**{**_fields(first), "name": group, "engine": group}, replicas=tuple(replicas))

    def replica(self, place: int) -> Model:
        """Return the replica at the index ``place``, but with the ``max_tokens`` and ``timeout_s`` of this group."""
        chosen = self.replicas[place]
        return chosen.model_copy(update={"max_tokens": self.max_tokens, "timeout_s": self.timeout_s})


def grouped(entries: Sequence[Model]) -> tuple[Model, ...]:
    """Return the models among which plans choose: entries without a group, and one :class:`ReplicaGroup` for each group.

    A group stands at the position of its first entry.

    Raises:
        ConfigError: A group has the name of an entry outside of it, or its entries cannot form a group.
    """
    groups: dict[str, list[Model]] = {}
    for entry in entries:
        if entry.group is not None:
            groups.setdefault(entry.group, []).append(entry)
    for entry in entries:
        if entry.name in groups and entry.group != entry.name:
            raise ConfigError(f"group {entry.name!r} has the name of an entry that is not in it: give one of them another name")
        if entry.engine in groups and entry.group is None:
            raise ConfigError(f"group {entry.engine!r} has the name of an engine: give the group or the engine another name")
    found: dict[str, Model] = {}
    for entry in entries:
        if entry.group is None:
            found[entry.name] = entry
        elif entry.group not in found:
            found[entry.group] = ReplicaGroup.of(groups[entry.group])
    return tuple(found.values())


def entries_of(model: Model) -> tuple[Model, ...]:
    """Return the replicas of a group. For a model that is not a group, return the model itself."""
    return model.replicas if isinstance(model, ReplicaGroup) else (model,)


def all_entries(models: Iterable[Model]) -> tuple[Model, ...]:
    """Return all catalog entries behind these models: each group is replaced by its replicas."""
    return tuple(entry for model in models for entry in entries_of(model))


def _fixed(model: Model) -> list[str]:
    return [key for key in type(model).model_fields if key not in OWN_OF_A_REPLICA]


def _fields(model: Model) -> dict[str, Any]:
    return {key: getattr(model, key) for key in Model.model_fields}


def _word(key: str) -> str:
    return "model" if key == "model_id" else key
