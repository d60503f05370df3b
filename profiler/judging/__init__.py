"""Asks the judge of a workflow, under the budget of the unit whose answer it is."""
