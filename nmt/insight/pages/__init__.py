"""Self-contained HTML pages: a template, styles, scripts and one block of JSON in a single file.

The figures are drawn on the page from the JSON. Nothing is loaded from outside, and text never becomes HTML.
"""

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from importlib.resources import files
from typing import Any

from pydantic import BaseModel
from torch import Tensor

SCRIPTS = {
    "check": ["figures.js", "check.js"],
    "compare": ["figures.js", "compare.js"],
    "explain": ["figures.js", "search_tree.js", "explain.js"],
    "report": ["figures.js", "report.js"],
}
LEVELS = 254  # of a value in a picture; 255 stands for -inf and NaN


def page(name: str, title: str, data: Any) -> str:
    """The page NAME.html with its styles, scripts and data.

    Args:
        name: of the files beside this module.
        title: of the window, plain text.
        data: JSON-serializable.
    """
    folder = files(__name__)

    def read(file: str) -> str:
        return folder.joinpath(file).read_text(encoding="utf-8")

    block = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Inside a script element only "</script" and "<!--" could end or change it.
    block = block.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    styles = read("base.css") + read(f"{name}.css")
    scripts = "".join(read(file) for file in SCRIPTS[name])
    parts = {
        "STYLES_HASH": hash_source(styles),
        "SCRIPTS_HASH": hash_source(scripts),
        "TITLE": html.escape(title),
        "STYLES": styles,
        "BODY": read(f"{name}.html"),
        "DATA": block,
        "SCRIPTS": scripts,
    }
    frame = read("frame.html")
    for key, part in parts.items():
        before, found, after = frame.partition(f"{{{{{key}}}}}")
        assert found
        frame = before + part + after
    return frame


def hash_source(text: str) -> str:
    """A source of a content security policy that allows just this inline script or style."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def content_security_policy(page: str) -> str:
    """The policy that a page declares, for a server to send as a header."""
    found = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert found
    return found[1]


def plain(value: Any, tensor: Callable[[Tensor], Any]) -> Any:
    """Dataclasses, named tuples and tensors as JSON-serializable values; numbers that are not finite become None."""
    if isinstance(value, Tensor):
        return tensor(value)
    if isinstance(value, BaseModel):
        return value.model_dump()
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name), tensor) for field in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {key: plain(x, tensor) for key, x in value._asdict().items()}
    if isinstance(value, dict):
        return {key: plain(x, tensor) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [plain(x, tensor) for x in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def packed(x: Tensor) -> dict[str, Any]:
    """A tensor for a picture: 8 bits a value, in base64.

    A value is low + (high - low) * byte / `LEVELS`.
    """
    x = x.detach().float().cpu()
    is_finite = x.isfinite()
    finite = x[is_finite]
    low, high = (finite.min().item(), finite.max().item()) if len(finite) else (0.0, 0.0)
    scale = LEVELS / (high - low) if high > low else 0.0
    levels = ((x - low) * scale).round().where(is_finite, LEVELS + 1).byte()
    data = base64.b64encode(levels.contiguous().numpy().tobytes()).decode()
    return {"shape": list(x.shape), "low": low, "high": high, "bytes": data}
