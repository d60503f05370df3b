"""Plans over tries whose histories are merged."""
