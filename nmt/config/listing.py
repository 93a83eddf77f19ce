"""The settings by dotted key, as `nmt config` lists them; the languages and places of corpora. Imports no torch."""

import os
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from nmt.config.schema import Config, Data, ModelPart, corpora_of, plain

DOWNLOADS = Path("data", "downloads")
BESIDE = Path("..", "shared", "data")  # corpora that several checkouts of the project share


def settings(section: type[BaseModel] = Config, prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Yield every setting as (dotted key, allowed values, default, help), in the order of the sections."""
    for name, field in section.model_fields.items():
        kind = field.annotation
        if (inner := section_in(kind)) is not None:
            yield from settings(inner, f"{prefix}{name}.{'NAME.' if get_origin(kind) is dict else ''}")
        else:
            default = "required" if field.is_required() else plain(field.default)
            yield f"{prefix}{name}", allowed_values(kind, field.metadata), default, field.description or ""


def section_in(kind: Any) -> type[BaseModel] | None:
    """Return the first section that a type has: itself, or the items of a list, dict or union."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind
    return next(filter(None, map(section_in, get_args(kind))), None)


def allowed_values(kind: Any, bounds: Sequence[Any]) -> str:
    """Return a field's type and range in short: `int 1..100`, `pre|post`."""
    if get_origin(kind) is Literal:
        return "|".join(get_args(kind))
    if get_origin(kind) is types.UnionType:
        kind = next(part for part in get_args(kind) if part is not type(None))
    if get_origin(kind) is tuple:
        return "path(s)" if get_args(kind)[0] is not ModelPart else f"list of {'|'.join(get_args(ModelPart))}"
    name = kind.__name__
    signs = {"ge": "", "gt": ">", "le": "", "lt": "<"}
    limits = {key: f"{sign}{getattr(b, key)}" for b in bounds for key, sign in signs.items() if hasattr(b, key)}
    low, high = limits.get("ge", limits.get("gt", "")), limits.get("le", limits.get("lt", ""))
    return f"{name} {low}..{high}" if low or high else name


FITTED = frozenset(key for key, *_, help_text in settings() if help_text.endswith("[fitted]"))
# Keys of `data`, and prefixes of all keys, whose values come from train.init_from.
INHERITED_DATA = {"nfkc_source", "target_tag", "placeholders", "glossary"}
INHERITED = ("model.", "tokenizer.", *(f"data.{key}" for key in INHERITED_DATA))


def values(config: Config, *, only_set: bool = False) -> Iterator[tuple[str, str]]:
    """Yield every setting, or only those set by the user, as (dotted key, value). Resolves paths, joins lists."""

    def walk(tree: Mapping[str, Any], prefix: str, root: Path) -> Iterator[tuple[str, str]]:
        for name, value in tree.items():
            if isinstance(value, Mapping):
                yield from walk(value, f"{prefix}{name}.", data_root(value["root"]) if value.get("root") else root)
            elif isinstance(value, tuple) and value and isinstance(value[0], Mapping):
                yield from walk({str(number): one for number, one in enumerate(value)}, f"{prefix}{name}.", root)
            elif isinstance(value, tuple):
                is_path = prefix.startswith("data.")
                yield f"{prefix}{name}", " ".join(str(root / text) if is_path else text for text in value) or "-"
            else:
                yield f"{prefix}{name}", plain(value)

    return walk(config.model_dump(exclude_unset=only_set), "", Path())


def chosen_by_training(config: Config) -> dict[str, str]:
    """Return marks in place of the values that training chooses for settings that are not set."""
    was_set = dict(values(config, only_set=True))
    if config.train.max_steps or config.train.max_minutes:
        was_set["train.max_epochs"] = "-"  # another limit is set
    found = dict.fromkeys(FITTED, "[fitted]")
    if origin := config.train.init_from:
        found |= {key: f"[as in {origin}]" for key, _ in values(config) if key.startswith(INHERITED)}
    return {key: mark for key, mark in found.items() if key not in was_set}


def language(data: Data, side: Literal["source", "target"]) -> str:
    """Return a side's language code: as set, else from the name of its first training file; empty if it has several."""
    is_target = side == "target"
    found = {
        files.languages.split("-")[is_target] if files.languages else language_of(Path(getattr(files, side)[0]))
        for files in corpora_of(data.train)
    }
    return (data.target_lang if is_target else data.source_lang) or (found.pop() if len(found) == 1 else "")


def language_of(path: Path) -> str:
    """Return the language code that a file name ends in (`test.zh-CN.gz`: zh-CN), else empty."""
    suffix = Path(path.name.removesuffix(".gz")).suffix.lstrip(".")
    return suffix if re.fullmatch(r"[a-z]{2,3}([-_]\w+)?", suffix) and suffix != "txt" else ""


def base_language(code: str) -> str:
    """Return a language code without region and script: zh for zh-CN, zho for zho_Hans."""
    return re.split("[-_]", code.lower())[0]


def downloads_directory() -> Path:
    """Return the directory of downloaded corpora: NMT_DATA, else data/downloads in the working directory."""
    return Path(os.environ.get("NMT_DATA") or DOWNLOADS)


def data_root(root: str) -> Path:
    """Return the directory that `data.root` stands for.

    `root` itself if it exists; else the first directory of this name below NMT_DATA, data/downloads and ../shared/data;
    else `root` itself. If `root` is absolute or contains `..`, only `root` itself is considered.
    """
    places = [Path(root)]
    if root and not places[0].is_absolute() and ".." not in places[0].parts:
        places += [place / root for place in (downloads_directory(), DOWNLOADS, BESIDE)]
    return next((place for place in places if place.is_dir()), places[0])
