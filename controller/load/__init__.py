"""The load of engines and how it slows calls down."""
