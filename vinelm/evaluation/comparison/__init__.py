"""The verdict on a user's own workflow: plans are chosen on some requests and tested on the others."""
