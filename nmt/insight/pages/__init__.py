"""Self-contained HTML pages: a template, styles, scripts and one block of JSON in a single file.

The scripts draw the figures from the JSON. A page loads nothing from the network and never inserts text as HTML.
"""

import base64
import hashlib
import html
import json
import re
import zlib
from collections.abc import Callable
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from pydantic_core import to_jsonable_python

if TYPE_CHECKING:
    from torch import Tensor

SCRIPTS = {
    "check": ["figures.js", "check.js"],
    "compare": ["figures.js", "compare.js"],
    "explain": ["figures.js", "search_tree.js", "map.js", "boxes.js", "player.js", "explain.js"],
    "growth": ["figures.js", "growth.js"],
    "report": ["figures.js", "report.js"],
}
LEVELS = 254  # the highest level of a packed value; 255 stands for -inf and NaN


def page(name: str, title: str, data: Any) -> str:
    """Return the page NAME.html, a key of `SCRIPTS`, with its styles, scripts and JSON-serializable data."""
    styles = read("base.css") + read(f"{name}.css")
    scripts = "".join(map(read, SCRIPTS[name]))
    block = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Inside a script element, only "</script" and "<!--" have a meaning in HTML.
    block = block.replace("<", "\\u003c")
    # These end a line in old JavaScript.
    block = block.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    body = read(f"{name}.html")
    parts = {
        "STYLES_HASH": hash_source(styles),
        "SCRIPTS_HASH": hash_source(scripts),
        "TITLE": html.escape(title),
        "STYLES": styles,
        "BODY": body,
        "DATA": block,
        "SCRIPTS": scripts,
    }
    # In one pass, because texts may contain placeholders.
    return re.sub(r"\{\{(\w+)\}\}", lambda placeholder: parts[placeholder[1]], read("frame.html"))


def read(file: str) -> str:
    return files(__name__).joinpath(file).read_text(encoding="utf-8")


def hash_source(text: str) -> str:
    """Return the source expression of a content security policy that allows only this inline script or style."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def content_security_policy(page: str) -> str:
    """Return the policy that a page declares; a server also sends it as a header."""
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    return policy[1]


def plain(value: Any, tensor: Callable[["Tensor"], Any] | None = None) -> Any:
    """Convert dataclasses, lists and, by the given function, tensors to JSON values; non-finite numbers become None."""
    return to_jsonable_python(value, inf_nan_mode="null", fallback=tensor)


def packed(x: "Tensor", *, compress: bool = False) -> dict[str, Any]:
    """Quantize a tensor to 8 bits per value, in base64, for the figures of a page.

    A value is low + (high - low) * byte / `LEVELS`. With `compress`, the bytes are in zlib's format: most attention
    weights of a long sentence are 0.
    """
    x = x.detach().float().cpu()
    is_finite = x.isfinite()
    finite = x[is_finite]
    low = finite.min().item() if len(finite) else 0.0
    high = finite.max().item() if len(finite) else 0.0
    scale = LEVELS / (high - low) if high > low else 0.0
    levels = ((x - low) * scale).round()
    levels = levels.where(is_finite, LEVELS + 1).byte()
    data = levels.numpy().tobytes()
    if compress:
        data = zlib.compress(data, 9)
    text = base64.b64encode(data).decode()
    return {"shape": list(x.shape), "low": low, "high": high, "bytes": text}
