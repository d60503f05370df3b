"""Estimating tries whose histories are merged (DESIGN: merging): what is remembered, masses along the edges, rates."""
