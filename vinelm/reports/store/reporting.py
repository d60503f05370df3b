"""Write the report of a store and its trie."""

from __future__ import annotations

from pathlib import Path

from vinelm.evaluation import Evaluation
from vinelm.reports.drawing.html import write_page
from vinelm.reports.store.page import store_page
from vinelm.trie.annotated_trie import AnnotatedTrie


def report(
    store: str | Path,
    trie: AnnotatedTrie | str | Path,
    output_dir: str | Path = "report",
    *,
    evaluation: Evaluation | None = None,
    in_use: str | Path | None = None,
    seed: int = 0,
) -> Path:
    """Write one self-contained HTML page about a store and the trie estimated from it. Calls no model.

    The page begins with the verdict of :func:`~vinelm.evaluate`. Then come sweeps of every bound, with all policies judged by
    requests that did not choose them, the models and the dollars of the chosen plan, and what it rests on. Takes some seconds:
    each half of the requests is estimated and planned anew.

    Args:
        store: The path of the observation store.
        trie: The annotated trie, or the path of its file.
        output_dir: The folder that gets ``report.html``; made if it does not exist.
        evaluation: What :func:`~vinelm.evaluate` said of this store and trie by its rows, with the same seed: its judgement
            is shown. None evaluates them: the result is the same, and takes longer.
        in_use: What the application runs today: a model, or the path of a JSON file as ``vinelm plan --json`` writes it, whose
            first plan is meant. The verdict compares with it. None: with the best static plan and the best single model.
        seed: Decides which half of the requests plans, and the resamples of the bootstrap.

    Returns:
        The path of the page.

    Raises:
        StoreError: The store cannot be read.
        TrieFileError: The trie file cannot be read.
        ConfigError: Store and trie do not belong together, ``in_use`` is no model or fixed plan of the trie, or the
            page cannot be written.
        EvidenceError: The store holds no observation.

    Examples:
        >>> import vinelm
        >>> vinelm.report("my-app.db", "my-app.vine", "report").name
        'report.html'
    """
    return write_page(
        store_page(store, trie, evaluation=evaluation, in_use=in_use, seed=seed), Path(output_dir) / "report.html"
    )
