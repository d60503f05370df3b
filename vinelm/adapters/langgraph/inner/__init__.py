"""Stages that no channel of the root graph can carry: inside subgraphs, and in applications without a graph."""
