"""Parallel text before training. Imports no torch."""
