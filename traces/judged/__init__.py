"""What a judge said of the rows of a store."""
