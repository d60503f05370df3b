"""Parts of the studies: rivals, simulated engines, mixtures at equal spend, complete tables. The product imports none."""
