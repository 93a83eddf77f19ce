"""Readers and writers of documents and of text with markup."""

_SUFFIXES = """
.csv .docx .htm .html .json .md .po .pptx .resx .srt .stringsdict .tmx .ts .txt .vtt .xlf .xliff .xml
"""
SUFFIXES = tuple(_SUFFIXES.split())
ZIPPED = (".docx", ".pptx")  # suffixes of formats that are ZIP archives of XML files
# The beginnings of texts of formats whose suffixes have other meanings, too. In a folder, other files are left out.
BEGINNINGS = {".ts": b"<TS", ".xml": b"<resources"}
