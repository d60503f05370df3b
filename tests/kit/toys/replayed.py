"""Applications whose checkpoints cannot be forked, on the toy's backend: subgraphs, repeated calls, supersteps, no graph."""

import asyncio
import operator
import random
import time
from functools import partial
from typing import Annotated, TypedDict

from langchain.agents import create_agent
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph

from kit.toys.profiling import LoadedWorkflow, State, ToyBackend, catalog_for, misbehave, toy
from vinelm import VineChatModel
from vinelm.template import Branch, Loop, Parallel, Stage, Template

MODELS = ("m0", "m1")


def stages(*names, answerable=None):
    """A chain; only the last stage holds an answer unless others are named."""
    last = {names[-1]} if answerable is None else set(answerable)
    return Template(tuple(Stage(name, MODELS, answerable=name in last) for name in names))


def accepted(answer):
    return answer in ("right", "plausible")


def right(request, state):
    return state["answer"] in ("right", "odd")


# -- no graph ---------------------------------------------------------------------------------------------------


def build_function(vine):
    writer, mender = vine.chat_model("generate"), vine.chat_model("repair")

    def solve(inputs):
        answer = writer.invoke(inputs["question"]).text
        for _ in range(2):
            if accepted(answer):
                break
            answer = mender.invoke(f"again: {inputs['question']} {answer}").text
        return {"answer": answer}

    return solve


def build_coroutine(vine):
    writer, mender = vine.chat_model("generate"), vine.chat_model("repair")

    async def solve(inputs):
        answer = (await writer.ainvoke(inputs["question"])).text
        for _ in range(2):
            if accepted(answer):
                break
            answer = "".join([chunk.text async for chunk in mender.astream(f"again: {inputs['question']} {answer}")])
        return {"answer": answer}

    return solve


def build_entrypoint(vine):
    writer, mender = vine.chat_model("generate"), vine.chat_model("repair")

    @task
    def mend(question, answer):
        return mender.invoke(f"again: {question} {answer}").text

    @entrypoint()
    def solve(inputs):
        answer = writer.invoke(inputs["question"]).text
        for _ in range(2):
            if accepted(answer):
                break
            answer = mend(inputs["question"], answer).result()
        return {"answer": answer}

    return solve


def function_toy(build=build_function, **changes):
    return toy(**({"build": build, "score": right} | changes))


# -- one node that calls twice ----------------------------------------------------------------------------------


def build_twice(vine):
    llm = vine.chat_model("think")
    judge = vine.chat_model("judge")

    def think(state: State) -> State:
        thought = llm.invoke(state["question"]).text
        return {"answer": judge.invoke(f"{state['question']}: {thought}").text, "log": [thought]}

    graph = StateGraph(State)
    graph.add_node("both", think)
    graph.add_edge(START, "both")
    graph.add_edge("both", END)
    return graph


def twice_toy(**changes):
    return toy(**({"build": build_twice, "template": stages("think", "judge"), "score": right, "replay": True} | changes))


# -- stages inside subgraphs -------------------------------------------------------------------------------------


def build_nested(vine):
    """A wrapped stage in the root graph, then two in a compiled subgraph, then one in the root graph."""

    def stage(name):
        def run(state: State, model) -> State:
            return {"answer": model.invoke(f"{name} {state['question']} {state.get('answer')}").text}

        return vine.stage(name, run)

    inner = StateGraph(State)
    inner.add_node("draft", stage("draft"))
    inner.add_node("edit", stage("edit"))
    inner.add_edge(START, "draft")
    inner.add_edge("draft", "edit")
    outer = StateGraph(State)
    outer.add_node("plan", stage("plan"))
    outer.add_node("write", inner.compile())
    outer.add_node("sign", stage("sign"))
    outer.add_edge(START, "plan")
    outer.add_edge("plan", "write")
    outer.add_edge("write", "sign")
    return outer


def nested_toy(**changes):
    return toy(**({"build": build_nested, "template": stages("plan", "draft", "edit", "sign"), "score": right} | changes))


def build_supervisor(vine):
    """The supervisor of the tutorials: workers are agents, and the supervisor is asked after each."""
    boss = vine.chat_model("boss")
    workers = {
        name: create_agent(VineChatModel(vine=vine, stage=name), tools=[], system_prompt=f"You are the {name}.")
        for name in ("research", "maths")
    }

    def supervise(state: MessagesState):
        return {"messages": [boss.invoke(state["messages"])]}

    def turn(state: MessagesState):
        done = sum(message.type == "ai" for message in state["messages"])
        return {1: "research", 3: "maths"}.get(done, END)

    graph = StateGraph(MessagesState)
    graph.add_node("supervisor", supervise)
    for name, agent in workers.items():
        graph.add_node(name, agent)
        graph.add_edge(name, "supervisor")
    graph.add_edge(START, "supervisor")
    graph.add_conditional_edges("supervisor", turn, ["research", "maths", END])
    return graph


def supervisor_toy(**changes):
    arms = {name: (Stage(name, MODELS, answerable=False),) for name in ("research", "maths")}
    fields = {
        "build": build_supervisor,
        "template": Template((Loop((Stage("boss", MODELS), Branch({**arms, "done": END})), times=3),)),
        "score": lambda request, state: state["messages"][-1].text in ("right", "odd"),
        "inputs": lambda request: {"messages": [("user", request.data["question"])]},
    }
    return toy(**(fields | changes))


# -- stages of one superstep --------------------------------------------------------------------------------------


class Experts(TypedDict, total=False):
    question: str
    views: Annotated[list[str], operator.add]
    answer: str


def build_experts(vine, is_async=False):
    def expert(name):
        def run(state: Experts, model) -> Experts:
            return {"views": [f"{name}: {model.invoke(state['question']).text}"]}

        async def arun(state: Experts, model) -> Experts:
            return {"views": [f"{name}: {(await model.ainvoke(state['question'])).text}"]}

        return vine.stage(name, arun if is_async else run)

    def judge(state: Experts, model) -> Experts:
        return {"answer": model.invoke(" ".join(sorted(state["views"]))).text}

    graph = StateGraph(Experts)
    for name in ("tax", "law", "art"):
        graph.add_node(name, expert(name))
        graph.add_edge(START, name)
    graph.add_node("judge", vine.stage("judge", judge))
    graph.add_edge(["tax", "law", "art"], "judge")
    return graph


def experts_toy(**changes):
    """In the template the experts stand in another order than LangGraph starts them, which is by name."""
    experts = Parallel(tuple(Stage(name, MODELS, answerable=False) for name in ("tax", "law", "art")))
    fields = {"build": build_experts, "template": Template((experts, Stage("judge", MODELS))), "score": right}
    return toy(**(fields | changes))


def build_gathered(vine):
    experts = [vine.chat_model(name) for name in ("tax", "law", "art")]
    judge = vine.chat_model("judge")

    async def solve(inputs):
        views = await asyncio.gather(*[expert.ainvoke(inputs["question"]) for expert in experts])
        return {"answer": (await judge.ainvoke(" ".join(view.text for view in views))).text}

    return solve


def build_jittery(vine, is_async=True):
    """A function of two branches side by side, each of two calls with work in a thread between them that takes any time."""
    llm = vine.chat_model("think")

    async def branch(question, name):
        first = (await llm.ainvoke(f"{name} {question}")).text
        await asyncio.to_thread(time.sleep, random.random() / 50)
        return (await llm.ainvoke(f"{name} {question}, {first}")).text

    async def solve(inputs):
        views = await asyncio.gather(*(branch(inputs["question"], name) for name in ("tax", "law")))
        return {"answer": views[0]}

    def node(name):
        def run(state: Experts) -> Experts:
            time.sleep(random.random() / 50)
            return {"views": [f"{name} {llm.invoke(name + state['question']).text}"]}

        return run

    graph = StateGraph(Experts)
    for name in ("art", "law", "tax"):
        graph.add_node(name, node(name))
        graph.add_edge(START, name)
    compiled = graph.compile()

    def solve_in_graph(inputs):
        return {"answer": compiled.invoke({"question": inputs["question"]})["views"][0].split()[1]}

    return solve if is_async else solve_in_graph


def jittery_toy(is_async=True, **changes):
    template = Template((Loop((Stage("think", MODELS),), times=2),))
    fields = {"build": partial(build_jittery, is_async=is_async), "template": template, "score": right}
    return toy(**(fields | changes))


TOYS = {
    "function": function_toy,
    "coroutine": lambda **changes: function_toy(build_coroutine, **changes),
    "entrypoint": lambda **changes: function_toy(build_entrypoint, **changes),
    "twice": twice_toy,
    "nested": nested_toy,
    "supervisor": supervisor_toy,
    "experts": experts_toy,
}


def load(name, mischief=None, **settings):
    """A toy by name, for processes; see :func:`kit.toys.profiling.load`."""
    workflow = TOYS[name](**settings)
    backend = ToyBackend(before=partial(misbehave, mischief or {}))
    return LoadedWorkflow(workflow, catalog_for(workflow), {"test": backend})
