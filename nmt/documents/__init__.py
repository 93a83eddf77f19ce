"""Readers and writers of documents and of text with markup."""

_SUFFIXES = """
.arb .csv .docx .ftl .htm .html .json .md .po .pptx .properties .resx .srt .strings .stringsdict .tmx .ts .tsv .txt .vtt
.xcstrings .xlf .xliff .xml
"""
SUFFIXES = tuple(_SUFFIXES.split())
ZIPPED = (".docx", ".pptx")  # suffixes of formats that are ZIP archives of XML files
# The beginnings of texts of formats whose suffixes have other meanings, too. In a folder, other files are left out.
BEGINNINGS = {".ts": b"<TS", ".xml": b"<resources"}
