"""Inspection of models and runs: attention heads, explanations of translations, reports, comparisons of systems."""
