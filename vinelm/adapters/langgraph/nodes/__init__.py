"""Nodes and edges that follow a policy: stages, routes, and the node that ends a request."""
