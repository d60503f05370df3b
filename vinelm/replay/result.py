"""The result of a replay: for each step a verdict and the lines of code to paste. Contains prompts only if requested."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from vinelm.backends.base import langsmith_names
from vinelm.catalog import Catalog
from vinelm.replay.kept import number_of
from vinelm.replay.plans import AnswerPlan, Kind
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.verdict import MAX_LOSS, Advice, counted, lead_of, plain_dollars

REQUESTS_USED = "all sampled requests are used, and more labels cannot settle it: replay a longer trace"


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """The verdict on one step.

    Attributes:
        step: The step's name.
        advice: ``switch``, ``keep``, ``undecided`` or ``not enough data``; see :class:`~vinelm.trie.verdict.Verdict`.
        today: The model that answered most of the step's recorded calls.
        plan: The plan that the verdict and the figures are about, whether or not it is advised; None if there was no plan
            to consider. ``kind``: its type, see :class:`~vinelm.replay.plans.AnswerPlan`; None if no plan was tested.
        usd: The step's cost in dollars per month, or in the whole trace if the trace is too short (``is_monthly`` is
            False).
        saved: Share of ``usd`` that the plan saves.
        differing, seen: Number of sampled requests in which the plan's answer differs from the recorded answer, and
            number of compared requests.
        latency_s, today_s: Mean seconds of the plan, one call after the other, and of today's calls; None if unknown.
        noise: (differing, asked): today's model was asked ``asked`` recorded prompts again, and ``differing`` of its new
            answers differ from the recorded ones; None if it was not asked.
        labels: Number of questions that people have answered; ``skipped``: how many of these were skipped.
        waiting: Number of questions that wait for an answer now.
        proven: The smallest loss of accuracy, a fraction, that is excluded with 95 % confidence, however often the test is
            looked at; None if no loss is excluded.
        needed: The expected number of further labels with which the loss of accuracy is proven to be below a value, keyed by
            this value (a fraction). Values that are proven already, or cannot be proven, are left out.
        forecast: The numbers of labels with which the proof is expected to succeed in half of all cases, and in 80 % of them.
            Estimated before the first question.
        audit: Share of equal answers about which people are asked, as an audit.
        judge: The model that compared answers; ``judge_r2``: the share of the labels' variance that it explains;
            ``judge_used``: whether it saves labels. None and False without a judge.
        how: How answers are compared, in a few words.
        why: A sentence with the reason if no plan is advised or the verdict is undecided.
        notes: Lines on models that failed or were dropped, and on what was left out.
        paste: The lines of code or configuration that make the switch, to be pasted.
        table: A tuple (name, saved, differing, seen) for each compared plan; the last three have the meaning of the
            attributes of these names.
        texts: Examples of answers that differ; empty unless asked for.
        plan_file: The trie for a canary, if the switch is to one model and today's model is in the catalog, too
            (:func:`~vinelm.replay.plan_file.plan_file_of`). Not in :meth:`to_dict`.
    """

    step: str
    advice: Advice
    today: str = ""
    plan: str | None = None
    kind: Kind | None = None
    usd: float = 0.0
    is_monthly: bool = True
    saved: float = 0.0
    differing: int = 0
    seen: int = 0
    latency_s: float | None = None
    today_s: float | None = None
    noise: tuple[int, int] | None = None
    labels: int = 0
    skipped: int = 0
    waiting: int = 0
    max_loss: float = MAX_LOSS
    proven: float | None = None
    needed: Mapping[float, int] = field(default_factory=dict)
    forecast: tuple[float, float] | None = None
    audit: float = 0.0
    judge: str | None = None
    judge_r2: float | None = None
    judge_used: bool = False
    how: str = ""
    why: str = ""
    notes: Sequence[str] = ()
    paste: str = ""
    table: Sequence[tuple[str, float, int, int]] = ()
    texts: Sequence[Mapping[str, Any]] = ()
    plan_file: AnnotatedTrie | None = field(default=None, compare=False, repr=False)

    @property
    def saved_usd(self) -> float:
        """Dollars that the plan saves in the period of :attr:`usd`."""
        return self.saved * self.usd

    @property
    def sentence(self) -> str:
        """The verdict on the step as a sentence that begins with the verdict's word, such as SWITCH."""
        lead = f"{lead_of(self.advice)}{' in' if self.advice == 'keep' else ''} `{self.step}`"
        if self.plan is None:
            return f"{lead}: {self.why}."
        of = "a month" if self.is_monthly else "of these calls"
        saves = f"saves {_usd(self.saved_usd)} of {_usd(self.usd)} {of}"
        differs = f"differs in {100 * self.differing / max(self.seen, 1):.1f} % of {self.seen:,} requests"
        if self.noise is not None and self.noise[1]:
            differs += f" (today's model differs from itself in {100 * self.noise[0] / self.noise[1]:.1f} % of {self.noise[1]})"
        asked = counted(self.labels, "label")
        if self.skipped:
            asked += f" ({self.skipped} skipped, counted as lost)"
        if self.audit:
            asked += f", of {100 * self.audit:g} % of the same answers, too"
        if self.advice == "switch" and self.proven is not None:
            loses = f"loses at most {_points(self.proven)} (95 %, at any look)"
            return f"{lead} to {self.plan}: {saves}; {differs}; {asked}: {loses}.{self._more()}"
        if self.advice == "undecided":
            return f"{lead}: {self.plan} {saves}; {differs}; {asked}: {self.why}.{self._more()}"
        return f"{lead}: {self.why}. The nearest plan, {self.plan}, {saves} and {differs}."

    def _more(self) -> str:
        """Return a sentence that says how many further labels could prove a smaller loss of accuracy.

        If the verdict is undecided, the sentence is about proving the allowed loss. The text is empty if further labels cannot
        prove the loss, or all sampled requests are used.
        """
        open_ = {loss: labels for loss, labels in self.needed.items() if self.proven is None or loss < self.proven}
        if self.advice == "undecided":
            open_ = {loss: labels for loss, labels in open_.items() if loss == self.max_loss}
        if not open_ or self.why == REQUESTS_USED:
            return ""
        loss = max(open_)
        return f" About {counted(open_[loss], 'label')} more would settle {_points(loss)}."

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON types, without ``plan_file``."""
        own = asdict(replace(self, plan_file=None)) | {"sentence": self.sentence, "saved_usd": self.saved_usd}
        del own["plan_file"]
        forecast = None if self.forecast is None else [one if math.isfinite(one) else None for one in self.forecast]
        return own | {"forecast": forecast, "needed": {str(loss): labels for loss, labels in self.needed.items()}}


@dataclass(frozen=True, kw_only=True)
class ReplayResult:
    """The result of a replay so far.

    Attributes:
        steps: The steps, largest possible saving first.
        others: For each step that was not studied, keyed by the step, its share of the bill.
        spent_usd, budget_usd: Dollars spent on calls in this and earlier runs, and their maximum.
        attempt: The number of the attempt on these requests; the attempts share the error probability.
        is_simulated: Whether models are simulated.
        lines: The lines that were printed before anything was sent.
        any_differs: (number of requests in which some switched step's plan differs from the recorded answer, number of
            requests). Both count only requests that the plans of all switched steps have answered.
    """

    steps: Sequence[StepResult]
    others: Mapping[str, float]
    spent_usd: float
    budget_usd: float
    attempt: int = 1
    is_simulated: bool = False
    lines: Sequence[str] = ()
    any_differs: tuple[int, int] = (0, 0)

    @property
    def waiting(self) -> int:
        """The number of questions that wait for people."""
        return sum(step.waiting for step in self.steps)

    @property
    def together(self) -> str:
        """The total saving and possible loss of all advised switches, in words; empty for fewer than two switches."""
        switched = [step for step in self.steps if step.advice == "switch" and step.proven is not None]
        if len(switched) < 2:
            return ""
        saved, usd, loss = (
            sum(values) for values in zip(*((one.saved_usd, one.usd, one.proven or 0.0) for one in switched), strict=True)
        )
        of = "a month" if switched[0].is_monthly else "of these calls"
        differing, seen = self.any_differs
        share = (
            f" In {100 * differing / seen:.1f} % of {seen:,} requests at least one of their answers differs." if seen else ""
        )
        return (
            f"Together the {len(switched)} switches save {_usd(saved)} of {_usd(usd)} {of}. Each is proven at 95 % for itself;"
            f" where one wrong step makes a request wrong, losses add up: at most {_points(loss)}.{share}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON types."""
        own = asdict(replace(self, steps=())) | {"steps": [step.to_dict() for step in self.steps]}
        return own | {"waiting": self.waiting, "together": self.together}


def canary_lines(step: str, today: str, max_loss: float) -> str:
    """Return lines of Python with which an application serves a step's plan to 5 % of its requests first.

    Args:
        step: The step's name.
        today: The catalog entry of today's model.
        max_loss: The allowed loss of accuracy, a fraction.
    """
    return "\n".join(
        (
            f"# or to 5 % of the requests first, beside today's model; --plans FOLDER writes {file_name(step)}",
            f'vine = VineLM("models.toml", trie="{file_name(step)}", canary=0.05)',
            f'vine.stage("{step}", ..., default="{today}")  # and vine.context(Objective(minimize="cost",'
            f" min_accuracy={1.0 - max_loss:g}))",
        )
    )


def file_name(step: str) -> str:
    """Return the name of a step's plan file, unique even on file systems that ignore case."""
    plain = _identifier(step)[:80]
    is_plain = plain == step == step.lower()
    return f"{plain}.vine" if is_plain else f"{plain}_{number_of(step):032x}"[: len(plain) + 9] + ".vine"


def lines_to_paste(plan: AnswerPlan, step: str, today: str, catalog: Catalog) -> str:
    """Return the lines that make a step use the plan instead of today's model: code for the application or, for a
    single model, a proxy's file.

    Args:
        plan: The plan.
        step: The name of the step.
        today: Today's model, as the trace names it.
        catalog: The models.
    """
    named = [langsmith_names(catalog[model]) for model in plan.models]
    if plan.kind == "alone":
        provider, model = named[0]
        return "\n".join(
            (
                "# LangChain, LangGraph: instead of today's model",
                f'llm = vine.around(init_chat_model("{provider}:{model}"))',
                "# or, where the step is one of VineLM's",
                f'vine.stage("{step}", ..., default="{plan.models[0]}")',
                "# or in LiteLLM's config.yaml, for all that call today's model",
                "model_list:",
                f"  - model_name: {today}",
                f"    litellm_params: {{model: {provider}/{model}}}",
            )
        )
    cheap = ", ".join(f'"{provider}:{model}"' for provider, model in named)
    passes = "check(messages, form(answer))"
    if plan.kind != "check":
        passes = "any(Sameness()(form(one), form(answer)) for one in said)"
    return "\n".join(
        (
            "from langchain.chat_models import init_chat_model",
            *(["from vinelm.replay import Sameness"] if plan.kind != "check" else []),
            "",
            f"cheap = [vine.around(init_chat_model(name)) for name in ({cheap},)]",
            'form = lambda message: {"content": message.text, "tool_calls": message.tool_calls}',
            "",
            f"def {_identifier(step)}(messages):  # {plan.name}",
            "    said = []",
            "    for model in cheap:",
            "        answer = model.invoke(messages)",
            f"        if {passes}:",
            "            return answer",
            "        said.append(answer)",
            "    return today.invoke(messages)",
        )
    )


def _identifier(step: str) -> str:
    found = "".join(one if one.isalnum() else "_" for one in step)
    return found if found.isidentifier() else f"step_{found}"


def _usd(value: float) -> str:
    return f"${value:,.0f}" if value >= 100 else plain_dollars(value)


def _points(loss: float) -> str:
    value = f"{100 * loss:.3g}"
    return f"{value} point{'' if value == '1' else 's'}"
