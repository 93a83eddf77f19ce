"""Translation of text with markup and of documents."""

SUFFIXES = (".docx", ".htm", ".html", ".md", ".pptx", ".txt")
