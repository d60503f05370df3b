"""What a run of a graph is made of: its supersteps, its clock, and what policies of other ages accept."""
