"""llmrouter-lib 0.4.0: its kNN, SVM and MLP routers, trained by its trainers on what each model answered alone.

Followed: the README's data format (`query`, `model_name`, `performance`, `embedding_id`) and the trainers of `llmrouter
train`, with the hyperparameters of the docstrings. The dollars measure each model alone on the same questions. The README
leaves open which of several right models is a query's label; both the cheapest and the dearest are tried, and of all six
routers the one is kept that a five-fold cross-validation on the measured questions prefers. The router picks a model for each
request by its question.

Not followed: the routers embed a query with Longformer, whose weights are not in the package. Each query is embedded by TF-
IDF of its words and of its characters and 64 singular vectors instead, so what is compared is its classifiers, not its
embedding.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from llmrouter.models import KNNRouter, KNNRouterTrainer, MLPRouter, MLPTrainer, SVMRouter, SVMRouterTrainer
from project import Project, measured_singles, replaced, run
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline, make_union

FOLDS, DIMENSIONS = 5, 64
ROUTERS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "knn": (KNNRouter, KNNRouterTrainer, {"n_neighbors": 10, "metric": "cosine"}),
    "svm": (SVMRouter, SVMRouterTrainer, {"kernel": "rbf", "C": 1.0, "gamma": "scale"}),
    "mlp": (MLPRouter, MLPTrainer, {"hidden_layer_sizes": [128, 64], "activation": "relu", "lr": 0.001, "epochs": 100}),
}
ROUTE = """
with open("router.pkl", "rb") as file:
    ROUTER = pickle.load(file)


def route(question):
    return ChatOpenAI(model=ROUTER(question))
"""


class Routing:
    """A trained router of the library with the embedding that it was trained on."""

    def __init__(self, embed: Any, model: Any, names: list[str] | None) -> None:
        self.embed, self.model, self.names = embed, model, names

    def __call__(self, question: str) -> str:
        """The model for a question."""
        vector = self.embed.transform([question])
        if self.names is None:
            return str(self.model.predict(vector)[0])
        return self.names[int(self.model.predict(torch.tensor(vector, dtype=torch.float32))[0])]


def trained(kind: str, order: list[str], asked: list[str], right: dict[str, list[bool]]) -> Routing:
    """A router trained on these questions; of models that are right alike, the first in the order is the label."""
    folder = Path(f"router-{kind}").resolve()
    folder.mkdir(exist_ok=True)
    texts = make_union(TfidfVectorizer(sublinear_tf=True), TfidfVectorizer(analyzer="char", ngram_range=(1, 3)))
    embed = make_pipeline(texts, TruncatedSVD(min(DIMENSIONS, len(asked) - 1), random_state=0))
    vectors = embed.fit_transform(asked)
    torch.save(torch.tensor(vectors, dtype=torch.float32), folder / "embeddings.pt")
    rows = [
        {"query": query, "model_name": model, "performance": float(right[model][i]), "embedding_id": i}
        for i, query in enumerate(asked)
        for model in order
    ]
    (folder / "routing.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    suffix = ".pt" if kind == "mlp" else ".pkl"
    paths = {f"{name}_model_path": str(folder / f"{name}{suffix}") for name in ("ini", "save", "load")}
    settings = {
        "data_path": {
            "query_embedding_data": str(folder / "embeddings.pt"),
            "routing_data_train": str(folder / "routing.jsonl"),
        },
        "model_path": paths,
        "hparam": ROUTERS[kind][2],
    }
    (folder / "router.yaml").write_text(json.dumps(settings))  # JSON is YAML
    torch.manual_seed(0)
    router = ROUTERS[kind][0](str(folder / "router.yaml"))
    trainer = ROUTERS[kind][1](router)
    trainer.train()
    names = None if kind != "mlp" else [router.idx_to_model[i] for i in range(router.num_classes)]
    return Routing(embed, trainer.model, names)


def choose(project: Project) -> dict[str, Any]:
    """The router that cross-validation prefers, trained on all that was measured."""
    right = measured_singles(project)
    asked = [question for question, _ in project.questions("choosing")][: len(right[project.today])]
    orders = {"cheapest": project.models, "dearest": project.models[::-1]}
    found: dict[tuple[str, str], float] = {}
    folds = np.arange(len(asked)) % FOLDS
    for kind in ROUTERS:
        for label, order in orders.items():
            hits = []
            for fold in range(FOLDS):
                train = [i for i in range(len(asked)) if folds[i] != fold]
                part = {model: [right[model][i] for i in train] for model in right}
                try:
                    router = trained(kind, order, [asked[i] for i in train], part)
                except ValueError:  # an SVM cannot be fitted where one model is every label
                    break
                hits += [right[router(asked[i])][i] for i in range(len(asked)) if folds[i] == fold]
            found[kind, label] = float(np.mean(hits)) if len(hits) == len(asked) else 0.0
    kind, label = max(found, key=lambda key: found[key])
    print(found, len(asked))
    with Path("router.pkl").open("wb") as file:
        pickle.dump(trained(kind, orders[label], asked, right), file)
    return {"router": kind, "label": label, "questions": len(asked), "validated": found[kind, label]}


def edited(project: Project, chosen: dict[str, Any]) -> str:
    """The source with the router's model for each request; an agent has it from a middleware."""
    source = replaced(project.source, (project.llm, ROUTE.lstrip()))
    head, docstring, rest = source.partition('"""\n\n')
    source = f"{head}{docstring}import pickle\n{rest}"
    if project.app != "agent":
        return source.replace("llm.invoke(", 'route(state["question"]).invoke(')
    middleware = """
@wrap_model_call
def routed(request, handler):
    return handler(request.override(model=route(request.messages[0].text)))


"""
    call = next(line for line in source.splitlines(keepends=True) if line.startswith("graph = "))
    imported = "from langchain.agents import create_agent\n"
    return replaced(
        source,
        (imported, imported + "from langchain.agents.middleware import wrap_model_call\n"),
        (
            call,
            middleware.lstrip("\n")
            + call.replace("(llm,", f'(ChatOpenAI(model="{project.today}"),').replace(")\n", ", middleware=[routed])\n"),
        ),
    )


if __name__ == "__main__":
    import peer_llmrouter  # so that the pickled class is found under this name

    run(peer_llmrouter.choose, edited)
