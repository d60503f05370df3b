"""The bundled problems: generated from a seed, each with its exact answer, a calculation of it, and what people get wrong."""
