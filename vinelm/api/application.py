"""``VineLM``, the object with which an application wraps its stages and routes; it plans their models while requests run."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from vinelm.adapters.langchain.chat_model import VineInterface
from vinelm.adapters.langgraph import GraphAdapter, RunContext
from vinelm.adapters.tools.tool_box import Record
from vinelm.adapters.tools.undeclared import watch_tools
from vinelm.api.application_fleet import ApplicationFleet
from vinelm.api.draws import VARIABLE, Draws
from vinelm.api.long_running import LongRunning
from vinelm.api.request_planners import RequestPlanners
from vinelm.backends.resolver import ModelResolver
from vinelm.catalog import Catalog
from vinelm.catalog.model import entries_of
from vinelm.catalog.prices import changed_prices_note
from vinelm.clock import Clock
from vinelm.controller import FleetConfig, Planner, Session
from vinelm.controller.fleet.joined.fleet import Fleet
from vinelm.controller.load.load_view import LoadSource
from vinelm.controller.load.source import load_source, never_blocks, without_blocking
from vinelm.controller.session.session import Mode
from vinelm.errors import ConfigError
from vinelm.money.spend_control import SpendControl
from vinelm.objective import Objective
from vinelm.plans.assignment import FOLLOWS, Assigned, Assignment
from vinelm.plans.recommendation import is_of_verdict, recommended
from vinelm.policies import DefaultPolicy, Judge, OnError
from vinelm.policies.policy import Policy
from vinelm.requests.names import label_of, scoped
from vinelm.requests.protocols import Backend, BesideService, LoadMonitor
from vinelm.requests.workflow import Request
from vinelm.signals import Signals
from vinelm.signals.kind import Kind
from vinelm.template import Template
from vinelm.tools.speculation import Candidates, Speculation
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.cache_hits import with_hits
from vinelm.trie.verdict import Verdict, require_max_loss
from vinelm.vinefile import load_trie

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from vinelm.api.canary import CanaryStatus
    from vinelm.api.served_evidence import EvidenceConfig
    from vinelm.traces import StoreIdentity

Node = Callable[..., Any]
MOVED = 0.1
"""The smallest absolute change of a cache's hit rate after which plans are updated."""
_LOG = logging.getLogger(__name__)
MOST_OBJECTIVES = 1024
"""How many objectives' recommendations and spend corrections are kept; callers choose objectives freely."""


class VineLM(VineInterface, LongRunning):
    """Wraps the LLM stages of a LangGraph application and chooses their models while a request runs.

    Plans are made over a trie, which has the predicted accuracy, cost and seconds of every path (sequence of models). Until a
    trie is loaded, or for a run without an objective, every stage runs its default model. Thread-safe.

    Attributes:
        models: makes the chat models.

    Args:
        models: a catalog or the path of its file, ready LangChain chat models by name, or ``provider:model`` strings. None
            takes the simulated models of ``trie``, since a trie file stores no addresses of real models.
        backends: backend by provider; None makes the backends of the catalog's providers on first use.
        template: the workflow's shape; by default the trie's.
        trie: an annotated trie or the path of its ``.vine`` file.
        mode: the mode of every :class:`~vinelm.controller.Session`: whether plans choose the models ("enforce"), are only
            computed ("observe"), or are off ("off").
        on_error: what follows a failure of VineLM itself while a graph runs. With ``"default"`` the stage runs its default
            model, and the trace records the failure. An edge follows the workflow's own verdict, up to the loop's maximum
            number of turns. A cap on the cost of a request, or on a tenant's cost per day, still applies. If it can no longer
            be checked, calls are refused. ``"raise"`` raises the error. Exceptions of the application's own code and
            :class:`~vinelm.errors.InfeasibleError` are always raised.
        fallback: after a failed call another model answers within the same stage: the plan's next best, or without a plan the
            next model that the stage allows. Such failures are rate limits, timeouts, server errors, empty, truncated or
            malformed answers, and prompts that are too long or unsupported for the model. No other model answers after the
            objective's deadline or cap, or in mode "observe" or "off". The same holds while the application's own
            ``retry_policy``, ``with_fallbacks``, ``with_retry`` or retrying middleware repeats the call.
        labelled: whether the right answer of every request is known, and :meth:`session` gets a ``judge``, as in an evaluation.
            Otherwise tries that end a request when its answer is right (the stop rule "oracle") are refused, since the right
            answers of served requests are unknown.
        load: the extra seconds that a call takes on each engine (the endpoint that serves a model) under the present load, read
            before each plan. It is a function, a monitor, or the file of slowdown curves that ``vinelm engine calibrate``
            wrote. A curve gives the extra seconds for a number of calls in flight. Counted are the calls of this process or, in
            a fleet, of all processes. By default load is estimated from the latencies of our own calls, if they take real time.
            A source that is slow or hangs delays no decision.
        correct_spend: adjust an objective's limit on the mean cost to the real cost of requests, slowly and by at most half
            (``vinelm.money.spend_control``). The adjustment is shared by all requests of an objective, and by all processes of
            a fleet. The limit of the plan that the trie's verdict has tested is never adjusted. For any other plan, the limit
            is adjusted for a request only if the plan chosen under the adjusted limit may serve the request. With ``labelled``,
            nothing is adjusted, since such requests evaluate the prediction.
        signals: the signals that the profiled workflow declares (``workflow.signals``); by default none.
        kind: finds the request's type, as the profiled workflow declares it (``workflow.kind``). It is a function of the state
            with which a graph begins, or the name of a field of that state. A request of an unknown type is planned as
            ``"other"``.
        fleet: the Redis through which several processes share load, rate limits and budgets: its URL, or a
            :class:`~vinelm.controller.FleetConfig`. By default this process shares nothing.
        evidence: the store to which the results of planned requests are written, in the form of a profile: its path, or an
            :class:`~vinelm.api.EvidenceConfig`. Writing delays no request.
        allow_unproven: serve plans to all requests, even if the trie does not prove that they are no worse than the current
            setup. By default, requests for which no plan is proven run the stages' defaults, and a trace shows what the plan
            would have done (:meth:`recommendation`).
        max_loss: accuracy, a fraction in [0, 1), that a cheaper plan may lose; None takes the value with which the trie was
            estimated (by default 0.03). The confidence intervals come from the trie's file.
        canary: the share of requests, in [0, 1), that plans serve, proven or not; the other requests run the stages' defaults.
            Live evidence then decides, and a plan that proves worse is no longer served (:attr:`canary`).
        draw_secret: at least 16 characters known only to you, the same in all processes that serve together. Requests and
            conversations are divided between plans by a hash of this secret and their names, so that no caller can choose the
            plan. None takes the environment's ``VINELM_DRAW_SECRET``, else a secret kept in a file next to the store of
            ``evidence``, else a random secret of this process.
        speculate: call read-only tools before the application asks for them (docs/tools.md), unless a request's context sets
            its own value. By default no tool is called early.
        record_tools: which data of a call observers and the store of tool calls get: "digests" of its arguments, or the
            "values" of arguments and results. With "values" the store also has the user's messages.
        tool_store: the store to which the calls of all tools are written, off the request path: its path, created if it does
            not exist. ``vinelm tools mine`` reads it. By default no calls are stored.
        autopilot: finds out while the service runs which cheaper models are good enough, and serves proven plans
            (docs/serve.md#autopilot-cheaper-models-while-you-serve).
    """

    def __init__(
        self,
        models: Catalog | str | Path | Mapping[str, BaseChatModel] | Sequence[str] | None = None,
        backends: Mapping[str, Backend] | None = None,
        *,
        template: Template | None = None,
        trie: AnnotatedTrie | str | Path | None = None,
        mode: Mode = "enforce",
        on_error: OnError = "default",
        fallback: bool = True,
        labelled: bool = False,
        load: LoadSource | LoadMonitor | str | Path | None = None,
        correct_spend: bool = True,
        signals: Signals | None = None,
        kind: Kind | None = None,
        fleet: str | FleetConfig | None = None,
        evidence: EvidenceConfig | str | Path | None = None,
        allow_unproven: bool = False,
        max_loss: float | None = None,
        canary: float | None = None,
        draw_secret: str | None = None,
        speculate: Speculation | None = None,
        record_tools: Record = "digests",
        tool_store: str | Path | None = None,
        autopilot: BesideService | None = None,
    ) -> None:
        if max_loss is not None:
            require_max_loss(max_loss)
        _require_canary(canary, mode, allow_unproven)
        self._share, self._given_secret = canary, draw_secret
        self.allow_unproven, self.max_loss = allow_unproven, max_loss
        self._advised = lru_cache(MOST_OBJECTIVES)(self._recommended)
        self._has_warned = False
        LongRunning.__init__(self, evidence)
        annotated = trie if trie is None or isinstance(trie, AnnotatedTrie) else load_trie(trie)
        if models is None:
            if annotated is None:
                raise ConfigError("VineLM needs models: pass a catalog, or the path of its file")
            models = annotated.catalog
            if backends is None:
                models.require_own()
        if autopilot is not None and (annotated is not None or labelled or mode != "enforce"):
            other = "a trie" if annotated is not None else "labelled=True" if labelled else f"mode={mode!r}"
            raise ConfigError(f"autopilot= does not go with {other}: it serves what it proves itself, so leave one of them out")
        self.models = ModelResolver(Catalog.of(models), backends)
        self.autopilot = autopilot
        self.adapter = GraphAdapter(
            self.models if autopilot is None else autopilot.around(self.models),
            template=template,
            new_policy=self._new_policy,
            on_error=on_error,
            enforces=mode == "enforce",
            fallback=fallback,
            signals=signals,
            kind=kind,
        )
        self.adapter.tools.speculation = speculate
        self.adapter.tools.record = _record(record_tools)
        self.adapter.tells_config = True  # names the tenant and the conversation of a request
        if tool_store is not None:
            self.adapter.tools.recorder = self._keep_tools(tool_store, self._tool_identity).put
            watch_tools(self.adapter.watch)
        self.mode: Mode = mode
        self.on_error: OnError = on_error
        self.fallback = fallback
        self.labelled = labelled
        self._planners: RequestPlanners | None = None
        self._annotated: AnnotatedTrie | None = None
        self._hit_rates: dict[tuple[str, str], float] = {}
        self._planning = Lock()
        self.correct_spend = correct_spend
        self._spend_control = lru_cache(MOST_OBJECTIVES)(self._new_control)
        self.fleet = None if fleet is None else ApplicationFleet(Fleet.of(fleet), self.models)
        others = None if self.fleet is None else self.fleet.others
        self._load_source = load_source(
            load,
            {model.engine for model in self.catalog.models},
            others,
            {model.engine: [one.engine for one in entries_of(model)] for model in self.catalog.models if model.group},
        )
        if self.fleet is not None:
            self.adapter.tenant, self.adapter.conversation_id = self.fleet.tenant, self.fleet.conversation_id
            has_accounts = mode == "enforce" and bool(self.fleet.fleet.config.daily_usd)
            self.adapter.account_of = self.fleet.account_of if has_accounts else None
        if annotated is not None:
            self._serve(annotated, None if isinstance(trie, AnnotatedTrie | None) else Path(trie))

    # -- building the graph ------------------------------------------------------------------------------------

    @property
    def catalog(self) -> Catalog:
        """The models that stages may run on."""
        return self.models.catalog

    @property
    def template(self) -> Template | None:
        """The workflow's stages and their possible order; None if neither a template nor a trie was given."""
        return self.adapter.template

    def close(self) -> bool:
        """Leave the fleet and give back this process's shares of budgets, stop watching the trie's file, and write pending
        rows. Return False if some rows are lost.

        Idempotent; also done when the process ends. Requests that are served afterwards write rows again.
        """
        if self.fleet is not None:
            self.fleet.fleet.stop()
        return super().close()

    # -- planning ----------------------------------------------------------------------------------------------

    @property
    def planner(self) -> Planner | None:
        """The planner that chooses among the paths of the loaded trie and ignores signals; None before a trie is loaded.

        New requests may use another planner; see :meth:`served_planner`.
        """
        return None if self._planners is None else self._planners.over_paths

    def load(self, trie: AnnotatedTrie | str | Path | None = None, *, patterns: Candidates | str | Path | None = None) -> None:
        """Use this trie for the plans of new requests; runs in progress keep the old trie.

        Plans use no models that the catalog lacks.

        Args:
            trie: an annotated trie or the path of its ``.vine`` file. None, with ``patterns``, leaves the plans as they are.
            patterns: guesses the next calls of read-only tools, for requests with ``speculate=``. It is the file of ``vinelm
                tools mine``, or an object. If the object has ``check(schemas)``, this is called first. With None, only calls
                that a model is writing are started early.

        Raises:
            ConfigError: the trie cannot serve. Every path needs a model that the catalog lacks, the trie is of another
                workflow, or its plans may end where the graph has no ``vine.route``. Or the trie ends requests when their
                answer is right, and ``labelled`` is False.
            TrieFileError: the file is missing or damaged.
        """
        if trie is None and patterns is None:
            raise ConfigError("load was given nothing: give a trie, patterns of tools, or both")
        if isinstance(patterns, str | Path):
            from vinelm.estimator.patterns.pattern_file import read_patterns

            guesses: Candidates | None = read_patterns(Path(patterns))
        else:
            guesses = patterns
        if guesses is not None:
            if not callable(getattr(guesses, "candidates", None)):
                raise ConfigError(f"patterns is a {type(guesses).__name__}: give a file or an object with candidates(history)")
            self.adapter.tools.require_reads()
            if callable(check := getattr(guesses, "check", None)):
                check(self.adapter.tools.schemas())
        if trie is not None:
            self._load_trie(trie)
        self.adapter.tools.candidates = guesses

    def _load_trie(self, trie: AnnotatedTrie | str | Path) -> None:
        """Use the annotated trie ``trie``, or the trie in that file, for the plans of new requests.

        The patterns that predict tool calls stay as they are.
        """
        if self.autopilot is not None:
            raise ConfigError("an autopilot serves what it proves itself: make a VineLM without one for a trie")
        annotated = trie if isinstance(trie, AnnotatedTrie) else load_trie(trie)
        self.adapter.tools.require_stages([stage.name for stage in annotated.template.base.stages])
        self._serve(annotated, None if isinstance(trie, AnnotatedTrie) else Path(trie))

    @property
    def tool_counts(self) -> Mapping[str, int]:
        """The counts of calls of declared tools, by the name of the count.

        "reads": the application's calls of tools that can be prefetched. Of these, "ready" were answered by a finished
        prefetch, and "joined" by one that was still running. "started": all prefetches. "unused": prefetches whose result no
        call used. "withheld": prefetches that were not made, because the mode is "observe".
        """
        return dict(self.adapter.tools.counts)

    def _tool_identity(self) -> StoreIdentity:
        from vinelm.api.served_evidence import unplanned_identity

        is_simulated = any(backend.is_simulated for backend in self.models.backends.values())
        return unplanned_identity(self.catalog, self.template, is_simulated=is_simulated)

    def _serve(self, annotated: AnnotatedTrie, path: Path | None) -> None:
        """Use this trie for the plans of new requests; ``path`` is its file, or None if it was not read from a file."""
        if not self.labelled:
            cannot_serve = ConfigError(
                "the trie stops by the oracle, which knows the right answers, so it cannot serve: estimate one that stops by "
                "the workflow's own check (stop='workflow'); an evaluation of labelled requests passes labelled=True",
                code="oracle-trie",
            )
            annotated.template.rule.require_served(cannot_serve)
        rates = self._rates_for(annotated)
        planners = RequestPlanners(with_hits(annotated, rates), self.adapter, self.catalog)
        if self._share is not None:
            from vinelm.api.canary import Canary  # imports the estimator's tests, which serving does not need

            self._canary = Canary(self._share, self.max_loss, annotated, self.adapter.observers)
        if not self.catalog.is_embedded and (note := changed_prices_note(annotated.catalog, self.catalog, "the catalog")):
            _LOG.warning("%s", note)
        self._planners, self._annotated, self._hit_rates = planners, annotated, rates
        self._advised.cache_clear()
        self._has_warned = False
        if self.adapter.template is None:
            self.adapter.template = annotated.template.base
        self._loaded(annotated, path, self.adapter.observers)
        if not self._draws.is_kept and not (self.fleet is None and self._canary is None):
            _LOG.warning(
                "which requests are drawn for which plan is this process's own: a conversation that goes on in another one, or "
                "after a restart, is drawn anew. Set %s, or keep evidence=", VARIABLE,
            )  # fmt: skip

    def prepare(self, *objectives: Objective) -> None:
        """Build the planner's index for these objectives now, so that no request waits for it.

        The index serves all objectives with the same target and the same kinds of limits, whatever the limits' values.

        Without this call, the first request starts to build it in the background if there are more than ten thousand paths.
        With fewer paths, a first plan takes milliseconds anyway.

        Raises:
            ConfigError: no trie is loaded, or it cannot plan such objectives (``risk="dp"`` over too many paths).
        """
        for objective in objectives:
            self.served_planner().prepare(objective)

    def recommendation(self, objective: Objective) -> Verdict | None:
        """Return the verdict on the plan for this objective: the share of the requests that the plan serves, and why.

        Returns:
            The verdict; None if the trie was estimated without a check, since no plan was then compared with the current setup.

        Raises:
            ConfigError: no trie is loaded.
            InfeasibleError: no plan meets the objective's limits, and the objective has ``on_infeasible="raise"``.
        """
        return self._advised(self.served_planner(), objective)

    @property
    def canary(self) -> CanaryStatus | None:
        """The status of the canary of the loaded trie; None without a canary. A new trie begins a new canary."""
        return None if self._canary is None else self._canary.status

    def _recommended(self, planner: Planner, objective: Objective) -> Verdict | None:
        annotated = planner.annotated
        found = recommended(annotated, objective, lambda: planner.mixed(objective).path_cost_usd, max_loss=self.max_loss)
        if (
            found is not None
            and found.is_today
            and found.advice != "switch"
            and not (self.allow_unproven or self._has_warned or self._canary)
        ):
            self._has_warned = True  # once per trie: every request may have a different objective
            _LOG.warning("plans for some objective are not served: %s", found.sentence)
        return found

    def session(
        self,
        objective: Objective,
        *,
        request: Request | None = None,
        judge: Judge | None = None,
        clock: Clock | None = None,
        started_at: float | None = None,
        returns_earlier: bool | None = None,
        configurable: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        planner: Planner | None = None,
    ) -> Session | DefaultPolicy:
        """Return a new policy for one request. Pass it as ``vine.context(policy=...)``.

        If signals are declared and the trie was estimated with them, plans depend on the request's signals. Without a trie
        every stage runs its default model, as with ``vine.context(objective)``.

        Args:
            objective: the request's objective: its target and its limits.
            request: the labelled request, for offline backends and for templates that end a request when its answer is right.
            judge: returns whether the answer in a state is right; needed for templates that end a request when its answer is
                right.
            clock: the request's clock; by default :meth:`new_clock`.
            started_at: the request's arrival in seconds of ``clock``; by default now.
            returns_earlier: whether the run can return an earlier answer than its last. None means True if answers are declared
                and every end of the graph is ``vine.finish``, else False.
            configurable: LangGraph's ``config["configurable"]`` with the conversation (``thread_id``) and the ``tenant`` that
                the application has authenticated; a fleet's settings may replace these keys.
            run_id: the request's name for :meth:`feedback`, unique within its tenant. By default a new name.
            planner: the planner of a batch, which tracks the remaining budget; by default :meth:`served_planner`.

        Raises:
            ConfigError: the trie cannot serve the objective, or it ends requests when their answer is right and ``judge`` is
                missing.
        """
        if self._planners is None:
            return self.adapter.defaults.policy(RunContext(objective=objective, request=request, started_at=started_at), clock)
        is_steered = planner is not None
        planner = planner or self.served_planner(returns_earlier=returns_earlier)
        clock = clock or self.models.new_clock()
        tenant = label_of(self.adapter.tenant, configurable)
        conversation = label_of(self.adapter.conversation_id, configurable)
        kept = None if self.evidence is None else self.evidence.request(run_id, clock, tenant=tenant)
        drawn = None
        name = run_id or (kept.run_id if kept is not None else secrets.token_hex(8))
        # The key of the draw is the same wherever a request is resumed, and a whole conversation shares one draw. A batch,
        # which passes its own planner, steers its dollars itself.
        if self.labelled and request is not None:
            drawn_by = self._key(planner, "request", "", request.id)
        elif conversation:
            drawn_by = self._key(planner, "conversation", tenant, conversation)
        else:
            drawn_by = self._key(planner, "request", tenant, name)
        if self._canary is not None:
            drawn = self._canary.draw(
                planner, objective, key=drawn_by, run_id=scoped(name, tenant), clock=clock, started_at=started_at,
                caller=self._key(planner, "tenant", tenant, "") if tenant else "",
            )  # fmt: skip
        follows = self._assigns(planner, objective).of(drawn_by) if drawn is None else drawn.request.is_plan
        # A batch, which hands in its planner, steers its dollars itself.
        control = self._control_of(planner, objective) if follows and not is_steered else None
        if control is not None:
            corrected = control.begin()
            if drawn is not None or self._assigns(planner, corrected).of(drawn_by):
                objective = corrected
        bound, failure = self._bound(planner, objective, drawn_by)
        if control is not None:
            control.planned(planner.plan(objective if bound is None else objective.drawn(bound)).path_cost_usd)
        planner.prepare_in_background(objective)
        session = Session(
            planner,
            objective,
            clock=clock,
            request=request,
            judge=judge,
            started_at=started_at,
            mode=self.mode,
            assigned=Assigned(follows, bound, is_trial=drawn is not None),
            on_error=self.on_error,
            fallback=self.fallback,
            load=self._load_seen,
            least_call_usd=self.models.least_call_usd,
            default=self._served_default,
            on_spent=None if control is None else control.spent,
            rows=None if self.fleet is None else self.fleet.rows(planner, objective, configurable),
            evidence=kept,
            follower=None if drawn is None else drawn.request,
        )
        if failure is not None:
            session.note_failure("the draw of a plan", failure, (), None, None)
        if self._canary is not None and drawn is not None:
            self._canary.follow(session, drawn)
        if kept is not None and self.evidence is not None:
            self.evidence.end_with(session, kept)
        return session

    def _bound(self, planner: Planner, objective: Objective, key: str) -> tuple[float | None, Exception | None]:
        """If requests are divided between two plans, return the limit under which the planner chooses this request's plan.

        A hash of ``key`` decides which of the two plans it is.

        Returns:
            (limit on the mean cost in dollars or on the mean accuracy, None) if requests are divided. (None, None) if one plan
            serves all requests. (None, error) if the planner failed.
        """
        try:
            mixture = planner.mixture(objective)
        except Exception as error:  # the planner: the request is then planned without shares
            if self.on_error == "raise":
                raise
            return None, error
        return (None if mixture is None else mixture.bounds.of(key)), None

    def _assigns(self, planner: Planner, objective: Objective) -> Assignment[bool]:
        """Return the rule that assigns a request to the plan for an objective (True) or to the current setup (False).

        The plan serves all requests, or the share for which it is proven.
        """
        proves = not self.allow_unproven and self.mode == "enforce"
        advised = self._advised(planner, objective) if proves else None
        # If the current setup is unknown, nothing could run instead of the plan.
        share = 1.0 if advised is None or not advised.is_today else advised.share
        return Assignment.of_share(share, True, False, FOLLOWS)

    @cached_property
    def _draws(self) -> Draws:
        """The object that makes the keys by which requests are assigned to plans.

        If :attr:`labelled` is True, as in an evaluation, the keys use no secret, so that the assignments can be repeated.
        """
        kept: Any = self._kept
        store = None if kept is None else Path(getattr(kept, "store", kept))
        return Draws(b"") if self.labelled else Draws.of(self._given_secret, store)

    def _key(self, planner: Planner, kind: str, tenant: str, name: str) -> str:
        return self._draws.key(str(planner.annotated.meta.get("dataset_digest", "")), kind, tenant, name)

    def _control_of(self, planner: Planner, objective: Objective) -> SpendControl | None:
        """Return the object that adjusts an objective's limit to the real spending of all its requests.

        None if the adjustment is switched off, or if the objective's limit is not adjusted.
        """
        if not (self.correct_spend and not self.labelled and self.mode == "enforce" and SpendControl.applies_to(objective)):
            return None
        verdict = planner.annotated.verdict
        if verdict is not None and is_of_verdict(verdict, objective):
            return None  # the verdict's bound selects its plan; it does not limit spending
        return self._spend_control(objective)

    def _new_control(self, objective: Objective) -> SpendControl:
        control = SpendControl(objective)
        if self.fleet is not None:
            self.fleet.fleet.share_correction(control)
        return control

    def served_planner(self, *, returns_earlier: bool | None = None) -> Planner:
        """Return the planner for new requests. Its plans depend on signals if the application declares signals and the trie has
        them; otherwise they are paths (sequences of models).

        Its plans end only where the graph can end a request, so call this after the graph is built.

        Args:
            returns_earlier: as in :meth:`session`.

        Raises:
            ConfigError: no trie is loaded.
        """
        if self._planners is None:
            raise ConfigError("no trie is loaded: call vine.load('....vine') before asking for a session")
        if self.adapter.caches and self._planning.acquire(blocking=False):  # other threads plan as before meanwhile
            try:
                self._follow_hits()
            finally:
                self._planning.release()
        return self._planners.chosen(returns_earlier=returns_earlier)

    def _rates_for(self, annotated: AnnotatedTrie) -> dict[tuple[str, str], float]:
        """Return the cache hit rates, by (stage, model), that plans over a trie take into account.

        They are empty if a verdict or a canary decides which plans serve. What a verdict or a canary proves holds only for
        plans that ignore caches.
        """
        is_free = annotated.verdict is None or self.allow_unproven
        return self.adapter.hit_rates if is_free and self._share is None else {}

    def _follow_hits(self) -> None:
        """Make new planners for the current cache hit rates if one of these rates has changed by at least :data:`MOVED`."""
        annotated, before = self._annotated, self._hit_rates
        if annotated is None:
            return
        rates = self._rates_for(annotated)
        if any(abs(rates.get(where, 0.0) - before.get(where, 0.0)) >= MOVED for where in {*rates, *before}):
            made = RequestPlanners(with_hits(annotated, rates), self.adapter, self.catalog)
            if self._annotated is annotated:  # no other trie was loaded meanwhile
                self._planners, self._hit_rates = made, rates
                self._advised.cache_clear()

    def _served_default(self, stage: str) -> str:
        """Return the stage's default model; if the catalog lacks it, the first catalog model that the stage allows."""
        declared, template = self.adapter.defaults.default_model(stage), self.adapter.template
        if declared in self.catalog or template is None:
            return declared
        allowed = next((known.models for known in template.stages if known.name == stage), None)
        return next((model for model in allowed or () if model in self.catalog), next(iter(self.catalog)))

    @cached_property
    def _load_seen(self) -> LoadSource | LoadMonitor | None:
        """The source that tells how many seconds longer a call takes on each engine under load; None without a source.

        If necessary it is wrapped, so that a session reads it without blocking.
        """
        source = self._load_source
        return source if never_blocks(source) or self.models.is_virtual_time else without_blocking(source)

    def _new_policy(self, context: RunContext) -> Policy | None:
        """Return a new session for the context's objective; None if there is no trie or objective to plan with."""
        if context.objective is None or self._planners is None:
            return None
        return self.session(
            context.objective,
            request=context.request,
            started_at=context.started_at,
            returns_earlier=context.returns_earlier,
            configurable=context.configurable,
            run_id=context.request_id,
        )


def _record(asked: Record) -> Record:
    if asked not in ("digests", "values"):
        raise ConfigError(f'record_tools is {asked!r}: it must be "digests" or "values"')
    return asked


def _require_canary(share: float | None, mode: Mode, allow_unproven: bool) -> None:
    """Raise :class:`ConfigError` if the canary's share is invalid, or if the canary would have no effect."""
    if share is None:
        return
    if not 0.0 <= share < 1.0:
        raise ConfigError(
            f"canary is {share}: it must be a share of the requests in [0, 1), since the plan is compared with the others; "
            "allow_unproven=True serves it to all"
        )
    if allow_unproven or mode != "enforce":
        other = "allow_unproven=True, which serves plans to all requests" if allow_unproven else f"mode={mode!r}"
        raise ConfigError(f"canary={share} has no effect with {other}: leave one of them out")
