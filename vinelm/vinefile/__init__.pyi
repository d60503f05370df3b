from .file import load_trie as load_trie
from .file import save_trie as save_trie
from .table import export_trie as export_trie
