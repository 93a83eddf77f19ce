"""Translation of text with markup and of documents."""

SUFFIXES = (".docx", ".htm", ".html", ".json", ".md", ".po", ".pptx", ".srt", ".txt", ".vtt")
