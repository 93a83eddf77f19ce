"""Faults injected into the real thing, and what must hold afterwards; see README.md."""
