"""Readers and writers of documents and of text with markup."""

# Suffixes of formats that are ZIP archives of XML files, and of all formats.
ZIPPED = (".docx", ".epub", ".odp", ".ods", ".odt", ".pptx", ".xlsx")
SUFFIXES = tuple(
    sorted((*ZIPPED, ".csv", ".htm", ".html", ".json", ".md", ".po", ".srt", ".txt", ".vtt", ".xlf", ".xliff"))
)
