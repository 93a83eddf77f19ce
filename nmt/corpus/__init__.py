"""Parallel text before training: download, check, split, choose settings. Imports no torch."""
