"""A web page and an HTTP API for translators (extra: serve).

client -> Guard (size, host, media type) -> API -> Batcher, one per model -> Translator
"""
