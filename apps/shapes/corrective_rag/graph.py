"""Corrective RAG: grade what was retrieved; where it does not help, rewrite the question and search the web."""

from typing import Literal, TypedDict

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel, Field
from shapes.towns import STORE, WEB, search


class GradeDocuments(BaseModel):
    """Whether a document helps."""

    binary_score: Literal["yes", "no"] = Field(description="the document is relevant to the question, 'yes' or 'no'")


class GraphState(TypedDict, total=False):
    question: str
    generation: str
    web_search: str
    documents: list[str]


grade_prompt = ChatPromptTemplate.from_messages(
    [
        ("system", "You grade whether a document is relevant to a question. Answer 'yes' or 'no'."),
        ("human", "Document: {document}\n\nQuestion: {question}"),
    ]
)
rag_prompt = ChatPromptTemplate.from_template("Answer with the number only.\nContext: {context}\nQuestion: {question}")
re_write_prompt = ChatPromptTemplate.from_template("Write search words for a web search that answers: {question}")


def build(vine):
    llm = vine.chat_model()
    rag_chain = rag_prompt | llm | StrOutputParser()
    question_rewriter = re_write_prompt | llm | StrOutputParser()

    def retrieve(state: GraphState):
        return {"documents": search(state["question"], STORE)}

    def generate(state: GraphState):
        return {"generation": rag_chain.invoke({"context": state["documents"], "question": state["question"]})}

    def grade_documents(state: GraphState, model):
        retrieval_grader = grade_prompt | model.with_structured_output(GradeDocuments)
        filtered_docs = []
        for document in state["documents"]:
            score = retrieval_grader.invoke({"question": state["question"], "document": document})
            if score.binary_score == "yes":
                filtered_docs.append(document)
        return {"documents": filtered_docs, "web_search": "No" if filtered_docs else "Yes"}

    def transform_query(state: GraphState):
        return {"question": question_rewriter.invoke({"question": state["question"]})}

    def web_search(state: GraphState):
        return {"documents": [*state["documents"], "\n".join(search(state["question"], WEB))]}

    def decide_to_generate(state: GraphState):
        return "transform_query" if state["web_search"] == "Yes" else "generate"

    workflow = StateGraph(GraphState)
    workflow.add_node("retrieve", retrieve)
    workflow.add_node("grade_documents", vine.stage("grade_documents", grade_documents))
    workflow.add_node("generate", generate)
    workflow.add_node("transform_query", transform_query)
    workflow.add_node("web_search_node", web_search)
    workflow.add_edge(START, "retrieve")
    workflow.add_edge("retrieve", "grade_documents")
    workflow.add_conditional_edges(
        "grade_documents", decide_to_generate, {"transform_query": "transform_query", "generate": "generate"}
    )
    workflow.add_edge("transform_query", "web_search_node")
    workflow.add_edge("web_search_node", "generate")
    workflow.add_edge("generate", END)
    return workflow.compile()
