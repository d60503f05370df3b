"""The verdict on a user's own workflow: one half of the requests plans, the other judges."""
