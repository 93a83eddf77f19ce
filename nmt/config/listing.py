"""The settings as `nmt config` lists them: dotted keys, allowed values, defaults, help. Imports no torch."""

import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from nmt.config.schema import Config, plain


def settings(section: type[BaseModel] = Config, prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Every setting as (dotted key, allowed values, default, help), in the order of the sections."""
    for name, field in section.model_fields.items():
        kind = field.annotation
        inner = next((a for a in (kind, *get_args(kind)) if isinstance(a, type) and issubclass(a, BaseModel)), None)
        if inner is not None:
            yield from settings(inner, f"{prefix}{name}.")
            continue
        default = "required" if field.is_required() else plain(field.default)
        yield f"{prefix}{name}", allowed_values(kind, field.metadata), default, field.description or ""


def allowed_values(kind: Any, bounds: Sequence[Any]) -> str:
    """A field's type in short: `int 1..100`, `pre|post`."""
    if get_origin(kind) is Literal:
        return "|".join(get_args(kind))
    if get_origin(kind) is types.UnionType:
        kind = next(part for part in get_args(kind) if part is not type(None))
    name = "path(s)" if get_origin(kind) is tuple else kind.__name__
    signs = {"ge": "", "gt": ">", "le": "", "lt": "<"}
    limits = {key: f"{sign}{getattr(b, key)}" for b in bounds for key, sign in signs.items() if hasattr(b, key)}
    low, high = limits.get("ge", limits.get("gt", "")), limits.get("le", limits.get("lt", ""))
    return f"{name} {low}..{high}" if low or high else name


FITTED = frozenset(key for key, *_, help_text in settings() if help_text.endswith("[fitted]"))
INHERITED = ("model.", "tokenizer.", "data.nfkc_source")  # prefixes of keys taken from a resumed run or train.init_from


def values(config: Config, *, only_set: bool = False) -> Iterator[tuple[str, str]]:
    """Every setting of a config as (dotted key, value); paths of corpora are resolved and separated by spaces.

    Args:
        only_set: leave out settings that have their default because nobody set them.
    """

    def walk(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
        for name, value in tree.items():
            if isinstance(value, Mapping):
                yield from walk(value, f"{prefix}{name}.")
            elif isinstance(value, tuple):
                yield f"{prefix}{name}", " ".join(str(Path(config.data.root, path)) for path in value)
            else:
                yield f"{prefix}{name}", plain(value)

    yield from walk(config.model_dump(exclude_unset=only_set), "")


def chosen_by_training(config: Config, keys: Iterable[str]) -> set[str]:
    """The keys that are not set, so that training inherits their values or fits them to the corpus."""
    was_set = dict(values(config, only_set=True))
    return {key for key in keys if key not in was_set and (key in FITTED or key.startswith(INHERITED))}
