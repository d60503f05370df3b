"""A plain function with two model calls and no graph, after the prompt chaining example of LangChain's workflow guide."""

from langchain_openai import ChatOpenAI

llm = ChatOpenAI(model="big")


def answer(question: str) -> str:
    calculation = llm.invoke(f"Rephrase as a bare calculation: {question}").text
    return llm.invoke(f"Calculate {calculation}. Number only.").text.strip()
