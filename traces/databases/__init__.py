"""Where a store is kept: the tables, and the databases that hold them."""
