"""Self-RAG: the models grade the documents, and then the answer, until it is grounded and useful."""

from typing import Literal, TypedDict

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel, Field
from shapes.towns import WEB, search


class GradeDocuments(BaseModel):
    """Whether a document helps."""

    binary_score: Literal["yes", "no"] = Field(description="the document is relevant to the question, 'yes' or 'no'")


class GradeGrounding(BaseModel):
    """Whether the answer stands in the documents."""

    binary_score: Literal["yes", "no"] = Field(description="the answer is grounded in the facts, 'yes' or 'no'")


class GradeAnswer(BaseModel):
    """Whether the question is answered."""

    binary_score: Literal["yes", "no"] = Field(description="the answer addresses the question, 'yes' or 'no'")


class GraphState(TypedDict, total=False):
    question: str
    generation: str
    documents: list[str]


grade_prompt = ChatPromptTemplate.from_template("Is this document relevant?\nDocument: {document}\nQuestion: {question}")
rag_prompt = ChatPromptTemplate.from_template("Answer with the number only.\nContext: {context}\nQuestion: {question}")
hallucination_prompt = ChatPromptTemplate.from_template("Is the answer grounded?\nFacts: {documents}\nProposed: {generation}")
answer_prompt = ChatPromptTemplate.from_template("Is this answered?\nQuestion: {question}\nProposed: {generation}")
re_write_prompt = ChatPromptTemplate.from_template("Improve this question for a search of documents: {question}")


def build(llm):
    rag_chain = rag_prompt | llm | StrOutputParser()
    question_rewriter = re_write_prompt | llm | StrOutputParser()
    hallucination_grader = hallucination_prompt | llm.with_structured_output(GradeGrounding)
    answer_grader = answer_prompt | llm.with_structured_output(GradeAnswer)

    def retrieve(state: GraphState):
        return {"documents": search(state["question"], WEB)}

    def generate(state: GraphState):
        return {"generation": rag_chain.invoke({"context": state["documents"], "question": state["question"]})}

    def grade_documents(state: GraphState):
        retrieval_grader = grade_prompt | llm.with_structured_output(GradeDocuments)
        filtered_docs = []
        for document in state["documents"]:
            score = retrieval_grader.invoke({"question": state["question"], "document": document})
            if score.binary_score == "yes":
                filtered_docs.append(document)
        return {"documents": filtered_docs}

    def transform_query(state: GraphState):
        return {"question": question_rewriter.invoke({"question": state["question"]})}

    def decide_to_generate(state: GraphState):
        return "generate" if state["documents"] else "transform_query"

    def grade_generation_v_documents_and_question(state: GraphState):
        score = hallucination_grader.invoke({"documents": state["documents"], "generation": state["generation"]})
        if score.binary_score != "yes":
            return "not supported"
        score = answer_grader.invoke({"question": state["question"], "generation": state["generation"]})
        return "useful" if score.binary_score == "yes" else "not useful"

    workflow = StateGraph(GraphState)
    workflow.add_node("retrieve", retrieve)
    workflow.add_node("grade_documents", grade_documents)
    workflow.add_node("generate", generate)
    workflow.add_node("transform_query", transform_query)
    workflow.add_edge(START, "retrieve")
    workflow.add_edge("retrieve", "grade_documents")
    workflow.add_conditional_edges(
        "grade_documents", decide_to_generate, {"transform_query": "transform_query", "generate": "generate"}
    )
    workflow.add_edge("transform_query", "retrieve")
    workflow.add_conditional_edges(
        "generate",
        grade_generation_v_documents_and_question,
        {"not supported": "generate", "useful": END, "not useful": "transform_query"},
    )
    return workflow.compile()
