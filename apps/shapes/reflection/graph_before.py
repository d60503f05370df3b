"""Reflection: one model writes, one criticises, for three rounds."""

from typing import Annotated, TypedDict

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages


class State(TypedDict):
    messages: Annotated[list, add_messages]


prompt = ChatPromptTemplate.from_messages(
    [
        ("system", "You sort words. Answer with the words only. If the user gives feedback, answer with a revised list."),
        MessagesPlaceholder("messages"),
    ]
)
reflection_prompt = ChatPromptTemplate.from_messages(
    [
        ("system", "You check sorted lists. Say 'Looks right.' or name the first word that is out of order."),
        MessagesPlaceholder("messages"),
    ]
)


def build(llm):
    generate = prompt | llm
    reflect = reflection_prompt | llm

    def generation_node(state: State):
        return {"messages": [generate.invoke(state["messages"])]}

    def reflection_node(state: State):
        cls_map = {"ai": HumanMessage, "human": AIMessage}
        translated = [state["messages"][0]] + [cls_map[msg.type](content=msg.content) for msg in state["messages"][1:]]
        res = reflect.invoke(translated)
        return {"messages": [HumanMessage(content=res.content)]}

    def should_continue(state: State):
        if len(state["messages"]) > 6:
            return END
        return "reflect"

    builder = StateGraph(State)
    builder.add_node("generate", generation_node)
    builder.add_node("reflect", reflection_node)
    builder.add_edge(START, "generate")
    builder.add_conditional_edges("generate", should_continue, ["reflect", END])
    builder.add_edge("reflect", "generate")
    return builder.compile()
