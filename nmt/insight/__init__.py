"""Look inside a model: statistics of its attention heads, and the explanation of one translation."""
