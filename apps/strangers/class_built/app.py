"""A class that holds its models and builds its graph from its methods, after the way many repositories wrap LangGraph."""

from typing import TypedDict

from langchain.chat_models import init_chat_model
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langgraph.graph import END, START, StateGraph


class State(TypedDict, total=False):
    query: str
    kind: str
    answer: str


class Assistant:
    """Classifies a question and answers it."""

    def __init__(self, model: str = "openai:big", small_model: str = "openai:mid") -> None:
        self.llm = init_chat_model(model)
        self.small_llm = init_chat_model(small_model)
        self.prompts = {
            "sum": ChatPromptTemplate.from_template("Add up: {query} Number only."),
            "product": ChatPromptTemplate.from_template("Multiply: {query} Number only."),
        }

    def classify(self, state: State):
        text = self.small_llm.invoke(f"Is this a sum or product? {state['query']}").text.strip()
        return {"kind": text if text in self.prompts else "sum"}

    def answer(self, state: State):
        chain = self.prompts[state["kind"]] | self.llm | StrOutputParser()
        return {"answer": chain.invoke({"query": state["query"]}).strip()}

    def build(self):
        builder = StateGraph(State)
        builder.add_node("classify", self.classify)
        builder.add_node("respond", self.answer)
        builder.add_edge(START, "classify")
        builder.add_edge("classify", "respond")
        builder.add_edge("respond", END)
        return builder.compile()


graph = Assistant().build()
