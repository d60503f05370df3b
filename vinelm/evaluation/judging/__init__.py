"""The verdict on a user's own workflow: plans are chosen by some requests and judged by the others."""
