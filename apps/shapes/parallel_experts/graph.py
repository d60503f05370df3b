"""Parallelization: three experts answer side by side, a judge decides."""

from typing import TypedDict

from langgraph.graph import END, START, StateGraph


class State(TypedDict, total=False):
    topic: str
    careful: str
    quick: str
    estimate: str
    combined_output: str


def build(vine):
    llm = vine.chat_model()

    def call_llm_1(state: State):
        return {"careful": llm.invoke(f"Work step by step, then answer with the number only. {state['topic']}").text}

    def call_llm_2(state: State):
        return {"quick": llm.invoke(f"Answer with the number only. {state['topic']}").text}

    def call_llm_3(state: State):
        return {"estimate": llm.invoke(f"Estimate first, then answer with the number only. {state['topic']}").text}

    def aggregator(state: State):
        answers = f"Proposed: {state['careful']}\nProposed: {state['quick']}\nProposed: {state['estimate']}"
        return {"combined_output": llm.invoke(f"{state['topic']}\n{answers}\nWhich is right? Number only.").text}

    parallel_builder = StateGraph(State)
    parallel_builder.add_node("call_llm_1", call_llm_1)
    parallel_builder.add_node("call_llm_2", call_llm_2)
    parallel_builder.add_node("call_llm_3", call_llm_3)
    parallel_builder.add_node("aggregator", aggregator)
    parallel_builder.add_edge(START, "call_llm_1")
    parallel_builder.add_edge(START, "call_llm_2")
    parallel_builder.add_edge(START, "call_llm_3")
    parallel_builder.add_edge("call_llm_1", "aggregator")
    parallel_builder.add_edge("call_llm_2", "aggregator")
    parallel_builder.add_edge("call_llm_3", "aggregator")
    parallel_builder.add_edge("aggregator", END)
    return parallel_builder.compile()
