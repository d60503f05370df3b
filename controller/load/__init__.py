"""The load of engines, and how load slows calls down."""
