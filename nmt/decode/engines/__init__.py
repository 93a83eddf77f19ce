"""The engines, which are implementations of the protocol `nmt.decode.options.Engine`."""
