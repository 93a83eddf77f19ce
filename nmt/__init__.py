"""A trainer of Transformer models for machine translation, and a translator that uses these models.

>>> import nmt
>>> translator = nmt.load("runs/demo")
>>> translator.translate(["我昨天买了一本书。"], beam=5)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nmt.errors import (
    ConfigError,
    DataError,
    DivergedError,
    InputError,
    LostRankError,
    ModelError,
    NmtError,
    OutputError,
    StoppedError,
)

if TYPE_CHECKING:
    from nmt.decode.options import SearchOptions
    from nmt.insight.explain import Explanation, explain
    from nmt.translate.loading import load
    from nmt.translate.translator import Translator
    from nmt.translate.units import Translation

__version__ = "0.1.0"

__all__ = ["Explanation", "SearchOptions", "Translation", "Translator", "__version__"]
__all__ += ["explain", "load"]
__all__ += ["ConfigError", "DataError", "DivergedError", "InputError", "LostRankError"]
__all__ += ["ModelError", "NmtError", "OutputError", "StoppedError"]

# Key: a module that is slow to import; value: its public names. A module is imported when a name is first used.
LAZY = {
    "nmt.decode.options": ("SearchOptions",),
    "nmt.translate.loading": ("load",),
    "nmt.translate.translator": ("Translator",),
    "nmt.translate.units": ("Translation",),
    "nmt.insight.explain": ("Explanation", "explain"),
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """Import a public name in `LAZY` when it is first used, so that `import nmt` does not wait for torch."""
    for module, names in LAZY.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'nmt' has no attribute '{name}'")
