"""Parts of `reproduce.py`: the tables of outcomes, each figure and table of the paper, pictures and text."""
