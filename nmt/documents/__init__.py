"""Readers and writers of documents and of text with markup."""

_SUFFIXES = """
.arb .csv .docx .ftl .htm .html .json .md .po .pptx .properties .srt .strings .tsv .txt .vtt .xcstrings .xlf .xliff
"""
SUFFIXES = tuple(_SUFFIXES.split())
ZIPPED = (".docx", ".pptx")  # suffixes of formats that are ZIP archives of XML files
