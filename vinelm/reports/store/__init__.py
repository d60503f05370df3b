"""The report of a store and its trie, section by section."""
