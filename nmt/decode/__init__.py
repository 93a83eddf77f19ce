"""Decoding: token ids in, hypotheses of token ids out; search, sampling and engines."""

from typing import Literal

# Defined here so that the command line can list the choices without importing the implementations.
Precision = Literal["fp32", "bf16", "int8"]
EngineName = Literal["auto", "torch", "ctranslate2"]
