"""nmt trains Transformer translation models and translates with them.

>>> import nmt
>>> translator = nmt.load("runs/demo")
>>> translator.translate(["我昨天买了一本书。"], beam=5)
"""

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
    from nmt.decode.segments import Translation
    from nmt.decode.translator import Translator, load
    from nmt.heads import HeadSummary, attention_summary

__version__ = "0.1.0"

__all__ = [
    "ConfigError",
    "DataError",
    "DivergedError",
    "HeadSummary",
    "InputError",
    "LostRankError",
    "ModelError",
    "NmtError",
    "OutputError",
    "SearchOptions",
    "StoppedError",
    "Translation",
    "Translator",
    "__version__",
    "attention_summary",
    "load",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """Import what needs torch only when it is asked for."""
    if name == "SearchOptions":
        from nmt.decode import options as module
    elif name in ("Translation", "Translator", "load"):
        from nmt.decode import translator as module  # type: ignore[no-redef]
    elif name in ("HeadSummary", "attention_summary"):
        from nmt import heads as module  # type: ignore[no-redef]
    else:
        raise AttributeError(f"module 'nmt' has no attribute '{name}'")
    return getattr(module, name)
