"""Routing: a model decides which specialist answers."""

from typing import Literal, TypedDict

from langchain_core.messages import HumanMessage, SystemMessage
from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel, Field


class Route(BaseModel):
    """The next step of the routing process."""

    step: Literal["arithmetic", "spelling", "calendar"] = Field(description="what the question is about")


class State(TypedDict, total=False):
    input: str
    decision: str
    output: str


def build(vine):
    llm = vine.chat_model()
    router = llm.with_structured_output(Route)

    def llm_call_1(state: State):
        """Calculate."""
        return {"output": llm.invoke(f"Calculate. Answer with the number only. {state['input']}").text}

    def llm_call_2(state: State):
        """Spell."""
        return {"output": llm.invoke(f"Spell. Answer with the letters only. {state['input']}").text}

    def llm_call_3(state: State):
        """Look at the calendar."""
        return {"output": llm.invoke(f"Answer with the name of the weekday only. {state['input']}").text}

    def llm_call_router(state: State):
        """Route the input to the right specialist."""
        asked = "Route the input to arithmetic, spelling or calendar, by what the user asks for."
        return {"decision": router.invoke([SystemMessage(asked), HumanMessage(state["input"])]).step}

    def route_decision(state: State):
        return {"arithmetic": "llm_call_1", "spelling": "llm_call_2", "calendar": "llm_call_3"}[state["decision"]]

    router_builder = StateGraph(State)
    router_builder.add_node("llm_call_1", llm_call_1)
    router_builder.add_node("llm_call_2", llm_call_2)
    router_builder.add_node("llm_call_3", llm_call_3)
    router_builder.add_node("llm_call_router", llm_call_router)
    router_builder.add_edge(START, "llm_call_router")
    router_builder.add_conditional_edges("llm_call_router", route_decision, ["llm_call_1", "llm_call_2", "llm_call_3"])
    router_builder.add_edge("llm_call_1", END)
    router_builder.add_edge("llm_call_2", END)
    router_builder.add_edge("llm_call_3", END)
    return router_builder.compile()
