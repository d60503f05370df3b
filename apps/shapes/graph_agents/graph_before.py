"""Agents on a graph: one action answers, or a plan and a loop of actions and reasoning, which share a notebook."""

from typing import Literal, TypedDict

from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel, Field
from shapes.graph_agents.rails import look_up

MOST_TURNS = 3
QUERIES = "Write one query and nothing else: 'rail from TOWN', or 'population of TOWN, TOWN'."


class Kind(BaseModel):
    """What a question takes."""

    kind: Literal["direct", "multi_hop"] = Field(description="direct: one query answers")


class Thought(BaseModel):
    """The answer, or what is missing for it."""

    answer: str | None = Field(None, description="the answer, if the notebook has it")
    missing: str | None = Field(None, description="what has to be looked up otherwise")


class GraphState(TypedDict, total=False):
    question: str
    kind: str
    missing: str
    query: str
    notebook: list[str]
    answer: str | None


def build(llm):
    def classify(state: GraphState):
        asked = f"Does one query answer this? {state['question']}"
        return {"kind": llm.with_structured_output(Kind).invoke(asked).kind}

    def act_direct(state: GraphState):
        return {"answer": look_up(llm.invoke(f"{QUERIES}\nFind: {state['question']}").text)}

    def plan(state: GraphState):
        return {"missing": llm.invoke(f"Say what has to be looked up first for: {state['question']}").text}

    def act(state: GraphState):
        return {"query": llm.invoke(f"{QUERIES}\nFind: {state['missing']}").text}

    def run(state: GraphState):
        entry = f"{state['query']}: {look_up(state['query'])}"
        return {"notebook": [*state.get("notebook", []), entry]}

    def reason(state: GraphState):
        notebook = "\n".join(state["notebook"])
        said = llm.with_structured_output(Thought).invoke(f"Notebook:\n{notebook}\nQuestion: {state['question']}")
        return {"answer": said.answer, "missing": said.missing or state["missing"]}

    def arm(state: GraphState):
        return "act_direct" if state["kind"] == "direct" else "plan"

    def is_done(state: GraphState):
        return END if state["answer"] or len(state["notebook"]) == MOST_TURNS else "act"

    builder = StateGraph(GraphState)
    builder.add_node("classify", classify)
    builder.add_node("act_direct", act_direct)
    builder.add_node("plan", plan)
    builder.add_node("act", act)
    builder.add_node("run", run)
    builder.add_node("reason", reason)
    builder.add_edge(START, "classify")
    builder.add_conditional_edges("classify", arm, ["act_direct", "plan"])
    builder.add_edge("act_direct", END)
    builder.add_edge("plan", "act")
    builder.add_edge("act", "run")
    builder.add_edge("run", "reason")
    builder.add_conditional_edges("reason", is_done, ["act", END])
    return builder.compile()
