"""What a question to a graph costs by code actions (GLM) and by an agent that walks it step by step (Graph-CoT).

    python scripts/bench_graphqa.py --data DIR [--json] [--results FILE] [--workers 2] [--parts counted hostile ...]

DIR has nodes.tsv.gz, edges.tsv.gz and questions.jsonl.gz with gold programs. No model is asked: both agents follow gold
scripts, so that calls and tokens are counted and nothing is said about accuracy. The prompts of GLM are those of the bundled
workflow, which runs; Graph-CoT's are modelled in its favour (see `cot_calls`), the size of its instructions is assumed.
Tokens are characters / 4; dollars are those of one model.

Other parts: hostile snippets; retrieval that starts while the program is written (virtual time); plans by stage on simulated
models, and models of which one is best; the bundled workflow from profile to served requests.
"""

from __future__ import annotations

import bisect
import gzip
import json
import random
import re
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

from graphqa_parts import budgets, eager, hostile, pipeline
from langchain_core.messages import AIMessage
from studies import each, study

from vinelm.errors import ConfigError
from vinelm.workflows import load_workflow
from vinelm.workflows.graphqa import GraphSource, graphqa, run_snippet
from vinelm.workflows.graphqa.dataset import calls_in, is_right
from vinelm.workflows.graphqa.prompts import FUNCTIONS, names_in
from vinelm.workflows.graphqa.workflow import demo_graphs

PARTS = ("routing", "counted", "one_model", "hostile", "eager", "pipeline")
EAGER_EVERY = 10
"""Every so many questions are run for retrieval that starts early."""
DIRECT, TIES = {1, 15, 16}, {17, 18, 23}
"""Templates of the questions that one action answers, and of those where any of the best is right."""
PRICES = {"in": 2.0, "out": 8.0}
"""Dollars for a million tokens (gpt-4.1)."""
CACHED_SHARES = (1.0, 0.5, 0.25, 0.1)
"""Price of a cached token as a share of an ordinary one; 1: no cache."""
LEAST_CACHED, BLOCK = 1024, 128
"""Prompts are cached from so many tokens on, in blocks."""
OBSERVED_CHARS = 4000
"""Characters of one observation of Graph-CoT that its later prompts keep: more would be dearer."""
THOUGHT = "I need to look at the nodes beside these, by the type of edge that the question asks for, and go on from there."
_LOOPS = re.compile(
    r"for disease in (.*):\n    for x in NeighbourCheck\(disease, ('.*')\):\n"
    r"        for y in NeighbourCheck\(x, ('.*')\):\n            (.*)\n"
)


def tokens(chars):
    return chars // 4


def with_lists(program):
    """The program with lists of ids in place of loops over single ones."""
    found = _LOOPS.search(program)
    if not found:
        return program
    start, first, second, body = found.groups()
    loop = f"for y in NeighbourCheck(NeighbourCheck({start}, {first}), {second}):\n    {body}\n"
    single, listed = (
        "(NodeFeature(y, 'name') for y in count if count[y] == best)",
        "(NodeFeature([y for y in count if count[y] == best], 'name'))",
    )
    return program.replace(found[0], loop).replace(single, listed)


def rows_of(folder, limit):
    with gzip.open(folder / "questions.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines][:limit]
    for row in rows:
        row |= {"any_of": row["template"] in TIES, "arm": "direct" if row["template"] in DIRECT else "multi_hop"}
    return rows


# -- GLM: the bundled workflow with gold answers -----------------------------------------------------------------------


class GoldVine:
    """Every stage answers as the writer's right answer; keeps each call's prompt and answer."""

    finish = staticmethod(lambda state: {})

    def __init__(self, writer):
        self._writer, self.request, self.calls = writer, None, []

    def stage(self, name, fn, **settings):
        """Answer by the writer."""
        return lambda state: fn(state, SimpleNamespace(invoke=lambda messages: self._answer(name, messages)))

    def _answer(self, name, messages):
        text = self._writer.at(name).right(self.request, random.Random(0))
        self.calls.append((name, "\n".join(message.content for message in messages), text))
        return AIMessage(text)

    def route(self, fn, *, again, end):
        """End where the check passes."""
        return lambda state: end if fn(state) else again

    def tool(self, fn, *, read_only):
        """Call it as it is."""
        return SimpleNamespace(invoke=lambda arguments: fn(**arguments))


def glm_calls(workflow):
    """By request: (stage, prompt, answer) of each call, and whether the answer is right."""
    vine = GoldVine(workflow.writer)
    app = workflow.build(vine).compile()
    for request in workflow.requests:
        vine.request, vine.calls = request, []
        state = app.invoke(workflow.graph_input(request), {"recursion_limit": 40})
        yield request, vine.calls, is_equal(request, state.get("answer"))


# -- Graph-CoT: thought, action, observation ---------------------------------------------------------------------------


def cot_calls(graph, row, static):
    """(stage, prompt, answer) of each call of the rival on a question, and whether an observation was cut.

    In its favour: one action may name all nodes of a level (its own functions take one), observations are cut; it never errs.
    Each turn has two calls, of which the second sees the thought of the first; each call sees everything before.
    """
    pad, calls, is_cut = f"{static}\n{graph.schema()}\nQuestion: {row['question']}\n", [], False
    for action, observed in (*_levels(graph, row), (f"Finish[{row['answer']}]", "")):
        for stage, text in (("thought", f"Thought: {THOUGHT}"), ("action", f"Action: {action}")):
            calls.append((stage, pad, text))
            pad += f"{text}\n"
        is_cut |= len(observed) > OBSERVED_CHARS
        pad += f"Observation: {observed[:OBSERVED_CHARS]}\n"
    return calls, is_cut


def _levels(graph, row):
    """The actions of a gold script with what each returns: retrieve, a hop from every node of a level, the names."""
    names = list(row["entities"].values())
    ids = [graph.retrieve(name) for name in names]
    yield ", ".join(f"RetrieveNode[{name}]" for name in names), ", ".join(ids)
    edges = [args[1].value for name, args in calls_in(row["program"]) if name in ("NeighbourCheck", "NodeDegree")]
    if "NodeDegree" in row["program"]:
        yield f"NodeDegree[{ids[0]}, {edges[0]}]", row["answer"]
        return
    if len(ids) > 1:
        hops = [(ids, edges)]
    else:
        order = sorted(edges, key=row["program"].index)
        hops, level = [], ids
        for edge in order:
            hops.append((level, [edge] * len(level)))
            level = list(dict.fromkeys(graph.neighbours(level, edge)))
    for level, types in hops:
        calls = ", ".join(f"NeighbourCheck[{node}, {edge}]" for node, edge in zip(level, types, strict=True))
        found = "; ".join(", ".join(graph.neighbours(node, edge)) for node, edge in zip(level, types, strict=True))
        yield calls[:OBSERVED_CHARS], found
    yield f"NodeFeature[{row['answer'][:200]}, name]", row["answer"]


# -- figures -----------------------------------------------------------------------------------------------------------


def _shared(one, other):
    most = min(len(one), len(other))
    return next((place for place in range(most) if one[place] != other[place]), most)


def priced(calls):
    """Calls, tokens and dollars of one question by the price of cached tokens; calls of one question share a prefix."""
    total = {"calls": len(calls), "tokens": 0, "out": 0, "cached": 0}
    before = []
    for _, prompt, text in calls:
        total["tokens"] += tokens(len(prompt)) + tokens(len(text))
        total["out"] += tokens(len(text))
        shared = tokens(max((_shared(prompt, other) for other in before), default=0))
        total["cached"] += shared // BLOCK * BLOCK if shared >= LEAST_CACHED else 0
        before.append(prompt)
    inside = total["tokens"] - total["out"]
    for share in CACHED_SHARES:
        paid = inside - (1 - share) * total["cached"]
        total[f"usd_{share}"] = (paid * PRICES["in"] + total["out"] * PRICES["out"]) / 1e6
    return total


def uncached(prompts):
    """Tokens of these prompts that no earlier one begins with, and all tokens; the cache forgets nothing and has no least."""
    known, fresh = [], 0
    for prompt in prompts:
        at = bisect.bisect(known, prompt)
        fresh += len(prompt) - max((_shared(prompt, other) for other in known[max(at - 1, 0) : at + 1]), default=0)
        known.insert(at, prompt)
    return tokens(fresh), tokens(sum(map(len, prompts)))


def reason_tokens(graph, rows, glm):
    """Tokens of the reasoning with the notebook as it is, and with vertex chunks of the question's entities in it.

    The cache is one that keeps every prompt; see `priced` for what providers really keep.
    """
    plain, chunked = [], []
    for row in rows:
        prompt = next((text for stage, text, _ in glm[row["question_id"]] if stage == "reason"), None)
        if prompt is not None:
            chunk = graph.info([graph.retrieve(name) for name in row["entities"].values()])
            plain.append(prompt)
            chunked.append(prompt.replace("Notebook:\n1. ", f"Notebook:\n1. {chunk}\n2. "))
    found = {}
    for name, prompts in (("plain", plain), ("vertex_chunks", chunked)):
        fresh, whole = uncached(prompts)
        found[name] = {"prompts": len(prompts), "tokens": whole, "uncached": fresh, "cached_share": 1 - fresh / max(whole, 1)}
    return found


def mean_of(found):
    return {key: statistics.fmean(one[key] for one in found) for key in found[0]} if found else {}


def is_equal(request, answer):
    """Whether an answer is the labelled one; where any of the best is right, the label may name only one of those given."""
    given, right = names_in(answer or ""), names_in(request.data["answer"])
    return is_right(request, {"answer": answer}) or (bool(request.data["any_of"]) and right <= given)


def programs(graph, requests, change):
    """Seconds of each gold program through the sandbox, and how many give the labelled answer.

    `reference_ms` is the median of a snippet that does nothing, run after each of them: what the machine makes of a round trip.
    """
    seconds, bare, equal = [], [], 0
    for request in requests:
        started = time.perf_counter()
        ran = run_snippet(change(request.data["program"]), graph.functions())
        seconds.append(time.perf_counter() - started)
        started = time.perf_counter()
        run_snippet("print(1)", {})
        bare.append(time.perf_counter() - started)
        equal += is_equal(request, ran.printed)
    seconds.sort()
    return {
        "equal": equal,
        "of": len(seconds),
        "median_ms": 1000 * statistics.median(seconds),
        "p95_ms": 1000 * seconds[int(0.95 * (len(seconds) - 1))],
        "max_ms": 1000 * seconds[-1],
        "reference_ms": 1000 * statistics.median(bare),
    }


def workflow_of(folder, rows, kind=GraphSource):
    """The workflow over the graph in a folder, and the graph."""
    graph = kind.from_tables(folder / "nodes.tsv.gz", folder / "edges.tsv.gz")
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "questions.jsonl"
        file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        return graphqa(graph, file), graph


def measured(folder, limit, examples):
    """Programs, calls, tokens and dollars."""
    rows = rows_of(folder, limit)
    workflow, graph = workflow_of(folder, rows)
    result = {
        "programs": programs(graph, workflow.requests, str),
        "programs_with_lists": programs(graph, workflow.requests, with_lists),
    }
    made = {request.id: (calls, right) for request, calls, right in glm_calls(workflow)}
    result["glm_right_by_gold_script"] = sum(right for _, right in made.values())
    result["reason"] = reason_tokens(graph, rows, {key: calls for key, (calls, _) in made.items()})
    glm = {key: priced(calls) for key, (calls, _) in made.items()}
    static = {"rival": "x" * 4 * examples, "rival_without_examples": ""}
    rival = {
        name: {row["question_id"]: cot_calls(graph, row, text + FUNCTIONS) for row in rows} for name, text in static.items()
    }
    result["rival_observations_cut"] = sum(is_cut for _, is_cut in rival["rival"].values())
    for source in ("GRBench", "generated"):
        for arm in ("direct", "multi_hop"):
            ids = [row["question_id"] for row in rows if (row["source"], row["arm"]) == (source, arm)]
            if not ids:
                continue
            part = {"questions": len(ids), "glm": mean_of([glm[key] for key in ids])}
            for name, found in rival.items():
                part[name] = mean_of([priced(found[key][0]) for key in ids])
                part[f"share_of_{name}"] = {key: part["glm"][key] / part[name][key] for key in part["glm"] if part[name][key]}
            result[f"{source} {arm}"] = part
    return result


def figures(part, *, data, limit, examples):
    """The figures of one part, by their names in the result."""
    print(f"{part} ...", file=sys.stderr, flush=True)
    if part == "counted":
        return measured(data, limit, examples)
    if part == "eager":
        rows = rows_of(data, limit)[::EAGER_EVERY]
        return {"eager": eager.measured(workflow_of(data, rows, eager.SlowSource)[0])}
    if part == "pipeline":
        return {"pipeline": pipeline.measured()}
    bundled, graphs = load_workflow("graphqa"), demo_graphs()
    if part == "hostile":
        return {"hostile": hostile.measured(graphs["library"].functions())}
    return {part: (budgets.measured if part == "routing" else budgets.verdict)(bundled, graphs)}


def main(words=None):
    options = {
        "--limit": (int, "only so many questions"),
        "--examples": (2000, "assumed tokens of Graph-CoT's instructions and examples"),
        "--parts": (PARTS, "only these", {"choices": PARTS}),
        "--workers": (1, "parts that are measured at a time"),
    }
    return study(__doc__, options, all_measured, lines, data="folder of the graph and its questions", words=words)


def all_measured(options):
    if not (options.data / "questions.jsonl.gz").is_file():
        raise ConfigError(f"{options.data}: no questions.jsonl.gz: name the folder of the graph")
    asked = {name: vars(options)[name] for name in ("data", "limit", "examples")}
    found = each(partial(figures, **asked), options.parts, jobs=options.workers, start="spawn")
    return {name: value for part in found for name, value in part.items()}


def lines(found):
    for name, part in found.items():
        yield f"{name} {json.dumps(part, indent=2) if isinstance(part, dict) else part}"


if __name__ == "__main__":
    sys.exit(main())
