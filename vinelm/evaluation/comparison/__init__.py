"""The verdict on a user's own workflow: plans are chosen by some requests and tested on the others."""
