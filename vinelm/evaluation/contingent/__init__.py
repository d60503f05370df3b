"""Plans over tries that branch: their arms, static plans, frontiers and promises."""
