"""Engines: implementations of `nmt.decode.options.Engine`."""
