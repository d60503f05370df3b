"""An answer in two tasks of LangGraph's Functional API, after the evaluator of its workflow tutorial: restate, then solve."""

from langchain_openai import ChatOpenAI
from langgraph.func import entrypoint, task

llm = ChatOpenAI(model="big")


@task
def restate(question: str) -> str:
    return llm.invoke(f"Rephrase as a bare calculation: {question}").text


@task
def solve(question: str, calculation: str) -> str:
    return llm.invoke(f"The user asks: {question}\nCalculate {calculation}. Number only.").text.strip()


@entrypoint()
def graph(inputs: dict) -> dict:
    calculation = restate(inputs["question"]).result()
    answer = solve(inputs["question"], calculation).result()
    return {"answer": answer}
