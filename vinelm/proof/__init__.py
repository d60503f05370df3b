"""Whether a plan loses more than a margin against today's answers, shown with labels only where the two differ. Pure."""
