"""Where a store is kept: its tables, and the databases that hold them."""
