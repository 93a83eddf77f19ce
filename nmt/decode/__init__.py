"""Decoding: search, engines and the translator."""

from typing import Literal

# Defined here so that the command line can list the choices without importing the implementations.
Precision = Literal["fp32", "bf16", "int8"]
EngineName = Literal["auto", "torch", "ctranslate2"]
