"""An exam question in two steps, one after the other: work it out, then fill in the answer sheet."""

from typing import TypedDict

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph

llm = ChatOpenAI(model="gpt-4")

SOLVE = """You sit an exam with questions from several fields: mathematics, law, logic, medicine, English and common sense.
Each question has one right answer among its choices. Read the passage, if there is one, and the question. Think step by step
before you decide: say what is asked, what is known and what follows from it, weigh each choice against the others, and check
your reasoning once more. Do not guess before you have looked at every choice. End with one sentence:
"The answer is", and the letter.

{question}"""
SHEET = """Fill in the answer sheet: write the letter of the answer and nothing else.

{question}

Solution: {solution}"""


class State(TypedDict, total=False):
    question: str
    solution: str
    answer: str


def solve(state: State):
    return {"solution": llm.invoke(SOLVE.format(**state)).text}


def write(state: State):
    return {"answer": llm.invoke(SHEET.format(**state)).text.strip()}


builder = StateGraph(State)
builder.add_node("solve", solve)
builder.add_node("write", write)
builder.add_edge(START, "solve")
builder.add_edge("solve", "write")
builder.add_edge("write", END)
graph = builder.compile()
