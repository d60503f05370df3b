"""Sequential tests of an annotated trie against rows that were served."""
