"""Self-contained HTML pages: each is a single file with a template, styles, scripts and one block of JSON.

The scripts draw the figures from the JSON. A page loads nothing from the network and never inserts text as HTML.
"""

import base64
import hashlib
import html
import json
import re
from collections.abc import Callable
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from pydantic_core import to_jsonable_python

if TYPE_CHECKING:
    from torch import Tensor

SCRIPTS = {  # key: name of a page; value: the files of its scripts, in the order in which they run
    "check": ["figures.js", "check.js"],
    "compare": ["figures.js", "compare.js"],
    "explain": ["figures.js", "search_tree.js", "map.js", "boxes.js", "player.js", "explain.js"],
    "report": ["figures.js", "report.js"],
}
LEVELS = 254  # the highest byte of a finite value in a packed tensor; 255 stands for inf, -inf and NaN


def page(name: str, title: str, data: Any) -> str:
    """Return an HTML page with its styles, its scripts and `data`, which must be JSON-serializable.

    `name` is a key of `SCRIPTS`; NAME.html is the template of the body.
    """
    styles = read("base.css") + read(f"{name}.css")
    scripts = "".join(map(read, SCRIPTS[name]))
    block = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Escape every "<": inside a script element, HTML gives a meaning to "</script" and "<!--".
    block = block.replace("<", "\\u003c")
    # Escape both separators: they end a line in JavaScript before ES2019, even inside a string.
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
    # Fill all placeholders in one pass: the inserted texts may look like placeholders themselves.
    return re.sub(r"\{\{(\w+)\}\}", lambda placeholder: parts[placeholder[1]], read("frame.html"))


def read(file: str) -> str:
    return files(__name__).joinpath(file).read_text(encoding="utf-8")


def hash_source(text: str) -> str:
    """Return the hash by which a content security policy allows this inline script or style."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def content_security_policy(page: str) -> str:
    """Return the content security policy that a page declares. A server sends the same policy as a header."""
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    return policy[1]


def plain(value: Any, tensor: Callable[["Tensor"], Any] | None = None) -> Any:
    """Convert dataclasses, lists and numbers to JSON values; infinite numbers and NaN become None.

    The function `tensor` converts the tensors in `value`.
    """
    return to_jsonable_python(value, inf_nan_mode="null", fallback=tensor)


def packed(x: "Tensor") -> dict[str, Any]:
    """Quantize a tensor to 8 bits per value, and encode the bytes in base64, for the figures of a page.

    A value is low + (high - low) * byte / `LEVELS`.
    """
    x = x.detach().float().cpu()
    is_finite = x.isfinite()
    finite = x[is_finite]
    low = finite.min().item() if len(finite) else 0.0
    high = finite.max().item() if len(finite) else 0.0
    scale = LEVELS / (high - low) if high > low else 0.0
    levels = ((x - low) * scale).round()
    levels = levels.where(is_finite, LEVELS + 1).byte()
    text = base64.b64encode(levels.numpy().tobytes()).decode()
    return {"shape": list(x.shape), "low": low, "high": high, "bytes": text}
