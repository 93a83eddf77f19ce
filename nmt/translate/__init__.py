"""The translation of texts: the translator, and the steps that prepare a text and restore its translation."""
