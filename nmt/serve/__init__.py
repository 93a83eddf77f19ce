"""A web page and an HTTP API for translators (extra: serve).

client -> Guard (size, host, media type) -> endpoints (libre, documents, v1) -> Batcher, one per model -> Translator
"""
