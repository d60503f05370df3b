from .decision_graph import DecisionGraph as DecisionGraph
from .outcomes import Outcomes as Outcomes
from .trie import MergedTrie as MergedTrie
from .trie import Trie as Trie
