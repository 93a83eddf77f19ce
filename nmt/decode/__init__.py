"""Search over a step function, and the translator: lines in, lines out."""

from typing import Literal

# Here, so that the command line can name the choices without importing what implements them.
Precision = Literal["fp32", "bf16", "int8"]
EngineName = Literal["torch", "ctranslate2"]
Utility = Literal["chrf", "bleu"]
