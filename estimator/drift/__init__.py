"""Sequential tests of whether served requests still match an annotated trie."""
