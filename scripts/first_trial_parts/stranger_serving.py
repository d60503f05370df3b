"""Serve held-out requests through the project that ``vinelm init`` left in this folder, under each policy in turn.

python -m first_trial_parts.stranger_serving CASE TRIE OBJECTIVE HELD_OUT    # prints one JSON object

The policies: what VineLM serves, its plan also where that is not recommended, the models of today, each model alone, and the
hand-written rule. The answers and prices are those of simulated models.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from langgraph.types import Command
from strangers.cases import CASES, PRICES, Case

from vinelm import Objective, Request, VineLM, Workflow, read_dataset
from vinelm.policies import DefaultPolicy, Policy

TOGETHER = 4
"""Requests at a time."""
Choice = Callable[[Request], Policy]


class StrangerProject:
    """The project of this folder, ready to answer requests."""

    def __init__(self, case: Case, trie: Path) -> None:
        sys.path.insert(0, os.getcwd())
        self.case = case
        self.workflow: Workflow = import_module("workflow").workflow
        modules = [module for name in ("app", "workflow") if (module := sys.modules.get(name)) is not None]
        found = [value for module in modules for value in vars(module).values() if isinstance(value, VineLM)]
        self.vine = found[0] if found else VineLM("models.toml")
        built: Any = self.workflow.build(self.vine)
        self.app: Any = built.compile() if hasattr(built, "compile") else built
        self.vine.load(trie)

    def choices(self, objective: Objective) -> dict[str, Choice]:
        """Each policy's name, and what makes it for a request."""
        column, rule = self.case.column, self.case.by_hand
        made: dict[str, Choice] = {
            "plan": lambda request: self.vine.session(objective),
            "plan_itself": lambda request: self._unproven(objective),
            "today": lambda request: DefaultPolicy(self.case.model_today),
            **{model: _single(model) for model in PRICES},
        }
        if rule is not None:
            made["by_hand"] = lambda request: DefaultPolicy(lambda stage: rule(str(request.data[column])))
        return made

    def _unproven(self, objective: Objective) -> Policy:
        """The plan also where it is not recommended."""
        own, self.vine.allow_unproven = self.vine.allow_unproven, True
        try:
            return self.vine.session(objective)
        finally:
            self.vine.allow_unproven = own

    def ask(self, request: Request, policy: Policy) -> dict[str, Any]:
        """Answer one request: whether it is right, its dollars, and its error if it failed."""
        try:
            return _outcome(policy, is_right=self._answer(request, policy))
        except Exception as error:
            return _outcome(policy, error=error)

    async def ask_async(self, request: Request, policy: Policy) -> dict[str, Any]:
        """The same for an application with coroutines."""
        try:
            with self.vine.request(policy=policy):
                state = await self.app.ainvoke(self.workflow.graph_input(request), _config())
            return _outcome(policy, is_right=bool(self.workflow.score(request, state)))
        except Exception as error:
            return _outcome(policy, error=error)

    def _answer(self, request: Request, policy: Policy) -> bool:
        given, config = self.workflow.graph_input(request), _config()
        with self.vine.request(policy=policy):
            state = self.app.invoke(given, config) if hasattr(self.app, "invoke") else self.app(given)
        if isinstance(state, dict) and "__interrupt__" in state:
            with self.vine.request(policy=policy):
                state = self.app.invoke(Command(resume=self.case.resumes_with), config)
        return bool(self.workflow.score(request, state))


def _single(model: str) -> Choice:
    return lambda request: DefaultPolicy(lambda stage: model)


def _config() -> dict[str, Any]:
    return {"configurable": {"thread_id": str(uuid.uuid4())}}


def _outcome(policy: Policy, *, is_right: bool = False, error: Exception | None = None) -> dict[str, Any]:
    words = "" if error is None else f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    return {"right": is_right, "usd": policy.spent_usd, "error": words, "calls": len(policy.invocations)}


def serve(served: StrangerProject, requests: Iterable[Request], choice: Choice) -> list[dict[str, Any]]:
    """The outcomes of all requests under one policy, in their order."""
    pairs = [(request, choice(request)) for request in requests]
    if not served.case.is_async:
        with ThreadPoolExecutor(TOGETHER) as pool:
            return list(pool.map(lambda pair: served.ask(*pair), pairs))

    async def every() -> list[dict[str, Any]]:
        gate = asyncio.Semaphore(TOGETHER)

        async def one(asked: Awaitable[dict[str, Any]]) -> dict[str, Any]:
            async with gate:
                return await asked

        return await asyncio.gather(*(one(served.ask_async(*pair)) for pair in pairs))

    return asyncio.run(every())


def used_usd() -> float:
    """Dollars of all calls that the server has answered for this application, whether VineLM made them or not."""
    address = os.environ["OPENAI_BASE_URL"].removesuffix("/v1") + "/used"
    with urlopen(address) as answer:
        used: dict[str, dict[str, int]] = json.load(answer)
    tokens = {model: (found["prompt_tokens"], found["completion_tokens"]) for model, found in used.items()}
    return sum((i * PRICES[model][0] + o * PRICES[model][1]) / 1e6 for model, (i, o) in tokens.items())


def main() -> None:
    """Serve, and print what came out."""
    name, trie, objective, held_out = sys.argv[1:]
    served = StrangerProject(next(case for case in CASES if case.name == name), Path(trie))
    wanted = Objective.from_dict(json.loads(objective))
    requests = read_dataset(Path(held_out)).requests
    found: dict[str, list[dict[str, Any]]] = {}
    billed: dict[str, float] = {}
    for policy, choice in served.choices(wanted).items():
        before = used_usd()
        found[policy] = serve(served, requests, choice)
        billed[policy] = used_usd() - before
    print(json.dumps({"outcomes": found, "billed_usd": billed}))


if __name__ == "__main__":
    main()
