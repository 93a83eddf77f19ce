"""Search over a step function, and the translator: lines in, lines out."""
