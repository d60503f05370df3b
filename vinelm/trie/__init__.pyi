from .decision_graph import DecisionGraph as DecisionGraph
from .outcomes import Outcomes as Outcomes
from .recorded_table import RecordedTable as RecordedTable
from .trie import MergedTrie as MergedTrie
from .trie import Trie as Trie
