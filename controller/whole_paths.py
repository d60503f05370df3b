"""Planning for applications whose loops the controller cannot end: only whole paths are ends."""

from __future__ import annotations

from dataclasses import replace

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.trie import ARRAYS, Trie


def whole_paths(annotated: AnnotatedTrie) -> AnnotatedTrie:
    """The same annotations over a trie whose leaves alone are answerable, so that plans lead to the last invocation.

    A planner over it looks plans up; one that is handed the leaves as ``candidates`` measures the subtree each time.
    """
    trie = annotated.trie
    arrays = {name: getattr(trie, name) for name in ARRAYS} | {"answerable": trie.answerable & trie.is_leaf}
    return replace(annotated, trie=Trie(stages=trie.stages, models=trie.models, **arrays))
