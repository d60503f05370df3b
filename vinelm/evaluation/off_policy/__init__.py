"""What a policy would have achieved, estimated from stored rows that other choices of models left: pure statistics."""
