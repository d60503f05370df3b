"""The results that a policy would have had, estimated from stored rows that other choices of models left: pure statistics."""
