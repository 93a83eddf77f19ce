"""Tests that inject faults into the real program and check the results; see README.md."""
