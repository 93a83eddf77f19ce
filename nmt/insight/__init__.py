"""Inspection of models and runs: attention heads, explanations, alignments, reports and comparisons of systems."""
