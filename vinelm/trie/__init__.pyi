from .trie import ARRAYS as ARRAYS
from .trie import BoolArray as BoolArray
from .trie import FloatArray as FloatArray
from .trie import IntArray as IntArray
from .trie import Trie as Trie
