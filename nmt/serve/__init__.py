"""A page and an HTTP API over translators (extra: serve).

client -> Guard (size, host, media type) -> API -> Batcher, one per model -> Translator
"""
