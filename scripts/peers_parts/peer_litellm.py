"""LiteLLM 1.110.2: its router with auto routing by complexity, `auto_router/complexity_router`, through langchain-litellm.

Followed: the README of `litellm/router_strategy/complexity_router`, "Basic configuration": the rules that score each prompt,
at their defaults, and a model for each of the four tiers. The dollars measure each model alone; the tiers are rungs of those
that no cheaper model beats, from the cheapest (SIMPLE) to the most accurate (REASONING). The library routes asynchronous
calls only, so the nodes of the application become coroutines.
"""

from __future__ import annotations

import re

from project import Project, frontier, measured_singles, replaced, run, with_llm

TIERS = ("SIMPLE", "MEDIUM", "COMPLEX", "REASONING")


def choose(project: Project) -> dict[str, str]:
    """A model for each tier."""
    rungs = frontier(project, measured_singles(project))
    return {tier: rungs[round(i * (len(rungs) - 1) / (len(TIERS) - 1))] for i, tier in enumerate(TIERS)}


def edited(project: Project, chosen: dict[str, str]) -> str:
    """The source with LiteLLM's router as its model, and nodes that are coroutines."""
    made = f"""MODELS = {list(dict.fromkeys(chosen.values()))!r}
params = {{"api_base": os.environ["OPENAI_BASE_URL"], "api_key": os.environ["OPENAI_API_KEY"]}}
smart = {{"model": "auto_router/complexity_router", "complexity_router_config": {{"tiers": {chosen!r}}}}}
router = Router(
    model_list=[
        *({{"model_name": model, "litellm_params": {{"model": f"openai/{{model}}", **params}}}} for model in MODELS),
        {{"model_name": "smart-router", "litellm_params": smart}},
    ]
)
llm = ChatLiteLLMRouter(router=router, model="smart-router", model_name="smart-router")
"""
    source = with_llm(project, made)
    old = "from langchain_openai import ChatOpenAI\n"
    source = replaced(source, (old, "from langchain_litellm import ChatLiteLLMRouter\nfrom litellm import Router\n"))
    source = re.sub(r'^("""[^\n]*"""\n\n)', r"\1import os\n", source)
    for node in project.stages:
        source = source.replace(f"def {node}(state", f"async def {node}(state")
    return re.sub(r"llm\.invoke\((.*)\)\.text", r"(await llm.ainvoke(\1)).text", source)


if __name__ == "__main__":
    run(choose, edited, has_coroutines=True)
