"""Sequential tests of an annotated trie against served rows."""
