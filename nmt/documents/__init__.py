"""Readers and writers of documents and of text with markup."""

_SUFFIXES = """
.arb .csv .docx .epub .ftl .htm .html .json .md .odp .ods .odt .po .pptx .properties .resx .srt .strings .stringsdict
.tmx .ts .tsv .txt .vtt .xcstrings .xlf .xliff .xlsx .xml
"""
SUFFIXES = tuple(_SUFFIXES.split())
# Suffixes of formats that are ZIP archives of XML files.
ZIPPED = (".docx", ".epub", ".odp", ".ods", ".odt", ".pptx", ".xlsx")
# These suffixes have other meanings, too. In a folder, only files whose beginning contains these bytes are documents.
BEGINNINGS = {".ts": b"<TS ", ".xml": b"<resources"}
# Suffixes of formats that contain sources and targets. If all targets are finished, there is nothing to translate.
BILINGUAL = (".po", ".tmx", ".ts", ".xcstrings", ".xlf", ".xliff")
