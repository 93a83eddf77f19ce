"""Parallel text before training: download it. Imports no torch."""
