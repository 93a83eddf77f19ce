"""Translation of text with markup: HTML."""
