"""The settings by dotted key, as `nmt config` lists them; the languages and places of corpora."""

import os
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel

from nmt.config.schema import Config, Data, Files, ModelPart, plain

DOWNLOADS = Path("data", "downloads")  # in the working directory
BESIDE = Path("..", "shared", "data")  # corpora that several checkouts of the project share

Side = Literal["source", "target"]  # of a corpus


class Setting(NamedTuple):
    """A row of the listing."""

    key: str  # dotted
    allowed: str
    default: str
    help: str


def settings(section: type[BaseModel] = Config, prefix: str = "") -> Iterator[Setting]:
    """Yield every setting, in the order of the sections."""
    for name, field in section.model_fields.items():
        key = prefix + name
        inner = section_in(field.annotation)
        if inner is None:
            # A single value.
            default = "required" if field.is_required() else plain(field.default)
            allowed = allowed_values(field.annotation, field.metadata)
            yield Setting(key, allowed, default, field.description or "")
        elif get_origin(field.annotation) is dict:
            # A section for each name that the user chooses, such as data.mix.
            yield from settings(inner, f"{key}.NAME.")
        else:
            yield from settings(inner, f"{key}.")


def section_in(kind: Any) -> type[BaseModel] | None:
    """Return the first section that a type has: itself, or the items of a list, dict or union."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind
    sections = map(section_in, get_args(kind))
    return next(filter(None, sections), None)


def allowed_values(kind: Any, bounds: Sequence[Any]) -> str:
    """Return a field's type and range in short: `int 1..100`, `pre|post`."""
    choices = get_args(kind)  # of a literal, its values; of a union or tuple, its types
    if get_origin(kind) is Literal:
        return "|".join(choices)
    if get_origin(kind) is tuple:
        # Lists are of paths, but for train.freeze.
        parts = "|".join(get_args(ModelPart))
        return f"list of {parts}" if choices[0] is ModelPart else "path(s)"
    if get_origin(kind) is types.UnionType:
        kind, _ = choices  # the second is None
    # Ranges include their ends, unless these have a sign.
    low = high = ""
    for bound in bounds:
        low = str(getattr(bound, "ge", low))
        high = str(getattr(bound, "le", high))
        if hasattr(bound, "gt"):
            low = f">{bound.gt}"
        if hasattr(bound, "lt"):
            high = f"<{bound.lt}"
    name = str(kind.__name__)
    return f"{name} {low}..{high}" if low or high else name


# Keys of the settings that training chooses if the user does not set them.
FITTED = frozenset(setting.key for setting in settings() if "[fitted]" in setting.help)
# Keys of `data`, and prefixes of all keys, whose values come from train.init_from.
INHERITED_DATA = {"nfkc_source", "target_tag", "placeholders", "glossary"}
INHERITED = ("model.", "tokenizer.", *(f"data.{key}" for key in INHERITED_DATA))


def values(config: Config, *, only_set: bool = False) -> Iterator[tuple[str, str]]:
    """Yield every setting, or only those set by the user, as (dotted key, value). Resolves paths, joins lists."""
    return leaves(config.model_dump(exclude_unset=only_set), "", Path())


def leaves(tree: Mapping[str, Any], prefix: str, root: Path) -> Iterator[tuple[str, str]]:
    """Yield the settings below a section; `root` is the directory of its corpora."""
    for name, value in tree.items():
        key = prefix + name
        if isinstance(value, Mapping):
            # A section or a corpus, which may have its own root.
            own_root = value.get("root")
            yield from leaves(value, f"{key}.", data_root(own_root) if own_root else root)
        elif isinstance(value, tuple) and any(isinstance(item, Mapping) for item in value):
            # A list of corpora, which are numbered.
            corpora = {str(number): corpus for number, corpus in enumerate(value)}
            yield from leaves(corpora, f"{key}.", root)
        elif isinstance(value, tuple):
            # A list of paths or of words.
            items = value
            if prefix.startswith("data."):
                items = tuple(str(root / path) for path in value)
            yield key, " ".join(items) or "-"
        else:
            yield key, plain(value)


def chosen_by_training(config: Config) -> dict[str, str]:
    """Return marks in place of the values that training chooses for settings that are not set."""
    # 1. What is fitted to the corpus, or comes from another model.
    marks = dict.fromkeys(FITTED, "[fitted]")
    if origin := config.train.init_from:
        mark = f"[as in {origin}]"
        marks |= {key: mark for key, _ in values(config) if key.startswith(INHERITED)}

    # 2. What the user has set stays.
    was_set = {key for key, _ in values(config, only_set=True)}
    if config.train.max_steps or config.train.max_minutes:
        was_set.add("train.max_epochs")  # another limit is set
    return {key: mark for key, mark in marks.items() if key not in was_set}


def language(data: Data, side: Side) -> str:
    """Return a side's language code: as set, else from the name of its first training file; empty if it has several."""
    was_set = data.source_lang if side == "source" else data.target_lang
    if was_set:
        return was_set
    # Corpora in several languages have none in common.
    codes = {language_of_side(files, side) for files in data.train}
    return codes.pop() if len(codes) == 1 else ""


def language_of_side(files: Files, side: Side) -> str:
    """Return the language code of a side of a corpus, from its direction or the name of its first file."""
    if files.languages:
        source, _, target = files.languages.partition("-")
        return source if side == "source" else target
    paths = files.source if side == "source" else files.target
    return language_of(Path(paths[0]))


def language_of(path: Path) -> str:
    """Return the language code that a file name ends in (`test.zh-CN.gz`: zh-CN), else empty."""
    name = Path(path.name.removesuffix(".gz"))
    suffix = name.suffix.lstrip(".")
    # A code, or something that looks like one.
    is_code = re.fullmatch(r"[a-z]{2,3}([-_]\w+)?", suffix) and suffix != "txt"
    return suffix if is_code else ""


def base_language(code: str) -> str:
    """Return a language code without region and script: zh for zh-CN, zho for zho_Hans."""
    # Both ways to write a code.
    return re.split("[-_]", code.lower())[0]


def downloads_directory() -> Path:
    """Return the directory of downloaded corpora: NMT_DATA, else data/downloads in the working directory."""
    return Path(os.environ.get("NMT_DATA") or DOWNLOADS)


def data_root(root: str) -> Path:
    """Return the directory that `data.root` stands for.

    `root` itself if it exists; else the first directory of this name below NMT_DATA, data/downloads and ../shared/data;
    else `root` itself. If `root` is absolute or contains `..`, only `root` itself is considered.
    """
    # Empty is the working directory.
    given = Path(root)
    if not root or given.is_absolute() or ".." in given.parts:
        return given
    for place in (given, downloads_directory() / root, DOWNLOADS / root, BESIDE / root):
        if place.is_dir():
            return place
    return given
