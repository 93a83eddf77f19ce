"""Text in, text out: the translator and its steps."""
