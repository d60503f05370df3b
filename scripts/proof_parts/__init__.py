"""Parts of `proof_labels.py`: plans over recorded answers, and races over draws of their requests."""
