"""A web page and an HTTP API that translate. They need `pip install nmt-trainer[serve]`.

The path of a request:
client -> Guard (size, host, media type) -> endpoints (libre, documents, v1) -> Batcher, one per model -> Translator
"""
