"""agentopt-py 0.1.0 by the quick start of its README: an agent class, `ModelSelector`, the best combination.

Followed: `ModelSelector(agent, models, eval_fn, dataset)` with `method="auto"`, its default; `model_prices` for models that
its price list does not know; `select_best(parallel=True)`; `get_best_combo()`. Every stage has all models as candidates. The
method takes a dataset and no dollars: it is run on ten questions, the README's smallest dataset, and on more, up to the
hundred that it recommends, for as long as dollars are left; its cache makes calls that were made before free.
"""

from __future__ import annotations

from typing import Any

from agentopt import ModelSelector
from project import Project, answer, loaded, metered, replaced, run

FIRST, MOST_GROWTH, MOST = 10, 4, 100
"""Questions of the first run, how many times as many the next may have, and the most: what the README recommends."""
USED = 0.8
"""Share of the dollars from which on no larger dataset is tried."""


def choose(project: Project) -> dict[str, str]:
    """The best combination of models."""
    module = loaded(edited(project, dict.fromkeys(project.stages, project.today)))
    asked = project.questions("choosing")

    class Agent:
        def __init__(self, models: dict[str, str]) -> None:
            self.graph = module.build(models)

        def run(self, question: str) -> str:
            return answer(self.graph, question)

    number = FIRST
    while True:
        selector = ModelSelector(
            agent=Agent,
            models=dict.fromkeys(project.stages, project.models),
            eval_fn=lambda expected, actual: float(expected == actual),
            dataset=asked[:number],
            model_prices={model: {"input_price": p[0], "output_price": p[1]} for model, p in project.prices.items()},
        )
        results = selector.select_best(parallel=True, max_concurrent=4)
        spent = metered()["total_usd"]
        print(number, spent, results.get_best_combo(), flush=True)
        grown = min(int(number * min(project.dollars / spent, MOST_GROWTH)), MOST)
        if spent >= USED * project.dollars or grown <= number:
            return dict(results.get_best_combo())
        number = grown


def edited(project: Project, chosen: dict[str, str]) -> str:
    """A function that builds the graph from a model for each stage, as the class of the README wants it."""
    source = project.source
    if project.app == "agent":
        line = next(line for line in source.splitlines(keepends=True) if line.startswith("graph = "))
        built = line.replace("graph = ", "    return ").replace("(llm,", '(ChatOpenAI(model=models["model"]),')
        return replaced(source, (project.llm, ""), (line, f"def build(models):\n{built}{_last(chosen)}"))
    builder = source[source.index("builder = ") :]
    lines = [f"    {line}" for line in builder.splitlines(keepends=True)]
    lines = [_bound(line, project.stages) for line in lines]
    lines[-1] = lines[-1].replace("graph = ", "return ")
    source = replaced(source, (project.llm, ""), (builder, "def build(models):\n" + "".join(lines) + _last(chosen)))
    source = replaced(source, ("(state: State)", "(state: State, llm)"))
    return replaced(source, ("from typing import", "from functools import partial\nfrom typing import"))


def _bound(line: str, stages: list[str]) -> str:
    """The line that adds a stage, with the stage's own model bound."""
    for stage in stages:
        for old in (f'add_node("{stage}", {stage})', f"add_node({stage})"):
            if old in line:
                return line.replace(old, f'add_node("{stage}", partial({stage}, llm=ChatOpenAI(model=models["{stage}"])))')
    return line


def _last(chosen: Any) -> str:
    return f"\n\ngraph = build({chosen!r})\n"


if __name__ == "__main__":
    run(choose, edited)
