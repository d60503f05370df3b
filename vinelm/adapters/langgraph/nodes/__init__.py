"""Nodes and edges of the application that ask a policy: stages, routes, and the node that ends a request."""
