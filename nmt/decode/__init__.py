"""Decoding: search, sampling and engines, which turn the token ids of a source into hypotheses of token ids."""

from typing import Literal

# These types are defined here, so that the command line can list the choices without importing the engines.
Precision = Literal["fp32", "bf16", "int8"]
EngineName = Literal["auto", "torch", "ctranslate2"]
