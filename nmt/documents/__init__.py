"""Formats around plain text: HTML."""
