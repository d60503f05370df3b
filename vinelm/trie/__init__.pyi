from .trie import MergedTrie as MergedTrie
from .trie import Trie as Trie
