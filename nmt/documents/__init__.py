"""Readers and writers of documents and of text with markup."""

SUFFIXES = (".csv", ".docx", ".htm", ".html", ".json", ".md", ".po", ".pptx", ".srt", ".txt", ".vtt", ".xlf", ".xliff")
ZIPPED = (".docx", ".pptx")  # suffixes of formats that are ZIP archives of XML files
