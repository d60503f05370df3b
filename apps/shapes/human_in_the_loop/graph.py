"""Human in the loop: a person reads each draft, and sends it back until it is right."""

from typing import Annotated, Literal, TypedDict

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt


class State(TypedDict, total=False):
    topic: str
    generated_post: Annotated[list, add_messages]
    human_feedback: Annotated[list, add_messages]
    final: str


def build(vine):
    llm = vine.chat_model()

    def model(state: State):
        """Write the post with the person's feedback."""
        feedback = state.get("human_feedback") or [HumanMessage("No feedback yet")]
        response = llm.invoke(f"Answer with the number only. {state['topic']}\nFeedback: {feedback[-1].text}")
        return {"generated_post": [AIMessage(response.text)]}

    def human_node(state: State) -> Command[Literal["model", "end_node"]]:
        """Loop back to the model unless the person is done."""
        generated_post = state["generated_post"][-1].text
        user_feedback = interrupt({"generated_post": generated_post, "message": "Provide feedback or type 'done'"})
        if user_feedback == "done":
            return Command(update={"human_feedback": [HumanMessage("Finalised")]}, goto="end_node")
        return Command(update={"human_feedback": [HumanMessage(user_feedback)]}, goto="model")

    def end_node(state: State):
        return {"final": state["generated_post"][-1].text}

    graph = StateGraph(State)
    graph.add_node("model", model)
    graph.add_node("human_node", human_node)
    graph.add_node("end_node", end_node)
    graph.add_edge(START, "model")
    graph.add_edge("model", "human_node")
    graph.set_finish_point("end_node")
    return graph.compile(checkpointer=InMemorySaver())
