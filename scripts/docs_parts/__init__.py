"""The parts of the documentation site: what `make docs` generates, and what it checks."""
