"""The list of settings that `nmt config` prints.

Other functions find the languages and the directory of a corpus.
"""

import os
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel

from nmt.config.schema import Config, Data, Files, ModelPart, plain
from nmt.languages import language_of_file, source_and_target

DOWNLOADS = Path("data", "downloads")  # directory of downloaded corpora, relative to the working directory
BESIDE = Path("..", "shared", "data")  # directory of corpora that several checkouts of the project share

Side = Literal["source", "target"]  # a side of a corpus


class Setting(NamedTuple):
    """A setting as `nmt config` lists it."""

    key: str  # the dotted key, such as train.lr
    allowed: str  # the type and range, see `allowed_values`
    default: str
    help: str


def settings(section: type[BaseModel] = Config, prefix: str = "") -> Iterator[Setting]:
    """Yield all settings of a section and its subsections. Keys begin with `prefix`."""
    for name, field in section.model_fields.items():
        key = prefix + name
        inner = section_in(field.annotation)
        if inner is None:
            default = "required" if field.is_required() else plain(field.default)
            allowed = allowed_values(field.annotation, field.metadata)
            yield Setting(key, allowed, default, field.description or "")
        elif get_origin(field.annotation) is dict:
            # The user chooses the names of these sections, as in data.mix.
            yield from settings(inner, f"{key}.NAME.")
        else:
            yield from settings(inner, f"{key}.")


def section_in(kind: Any) -> type[BaseModel] | None:
    """Return the first section that a type contains, such as `Files` for `tuple[Files, ...]`, or None."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind
    sections = map(section_in, get_args(kind))
    return next(filter(None, sections), None)


def allowed_values(kind: Any, bounds: Sequence[Any]) -> str:
    """Describe the type and range of a field, such as `int 1..100` or `pre|post`."""
    choices = get_args(kind)  # the values of a literal, or the types in a union or tuple
    if get_origin(kind) is Literal:
        return "|".join(choices)
    if get_origin(kind) is tuple:
        # train.freeze lists parts of the model. All other lists contain paths.
        parts = "|".join(get_args(ModelPart))
        return f"list of {parts}" if choices[0] is ModelPart else "path(s)"
    if get_origin(kind) is types.UnionType:
        kind, _ = choices  # the second type is None
    # A bound that is excluded gets < or > before it.
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
# With train.init_from, these settings come from that model. `INHERITED` contains prefixes of keys.
INHERITED_DATA = {"nfkc_source", "target_tag", "placeholders", "glossary"}
INHERITED = ("model.", "tokenizer.", *(f"data.{key}" for key in INHERITED_DATA))


def values(config: Config, *, only_set: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the dotted key and the value of every setting. With `only_set`, yield only what the user has set.

    Paths of corpora are resolved. The items of a list are joined by spaces.
    """
    return leaves(config.model_dump(exclude_unset=only_set), "", Path())


def leaves(tree: Mapping[str, Any], prefix: str, root: Path) -> Iterator[tuple[str, str]]:
    """Yield the key and the value of each setting in a section. `root` is the directory of the corpora."""
    for name, value in tree.items():
        key = prefix + name
        if isinstance(value, tuple) and any(isinstance(item, Mapping) for item in value):
            # The value is a list of corpora. The key of each corpus is its number.
            value = {str(number): corpus for number, corpus in enumerate(value)}
        if isinstance(value, Mapping):
            # The value is a section. A corpus may have its own root.
            own_root = value.get("root")
            yield from leaves(value, f"{key}.", data_root(own_root) if own_root else root)
        elif isinstance(value, tuple | list):
            # The value is a list of paths or of words.
            items = [str(root / path) for path in value] if prefix.startswith("data.") else value
            yield key, " ".join(items) or "-"
        else:
            yield key, plain(value)


def chosen_by_training(config: Config) -> dict[str, str]:
    """Return the settings that training chooses, by key. Each value is a mark such as [fitted]."""
    # 1. Mark the settings that are fitted to the corpus, or come from another model.
    marks = dict.fromkeys(FITTED, "[fitted]")
    if origin := config.train.init_from:
        mark = f"[as in {origin}]"
        marks |= {key: mark for key, _ in values(config) if key.startswith(INHERITED)}

    # 2. Leave out the settings that the user has set.
    was_set = {key for key, _ in values(config, only_set=True)}
    if config.train.max_steps or config.train.max_minutes:
        was_set.add("train.max_epochs")  # the user has set another limit instead
    return {key: mark for key, mark in marks.items() if key not in was_set}


def language(data: Data, side: Side) -> str:
    """Return the language code of a side of the training corpora.

    If the code is not set, it comes from the directions or file names of the corpora. The result is empty if there is
    no code or more than one.
    """
    was_set = data.source_lang if side == "source" else data.target_lang
    if was_set:
        return was_set
    # Corpora in several languages have no common code.
    codes = {language_of_side(files, side) for files in data.train}
    return codes.pop() if len(codes) == 1 else ""


def languages_of(data: Data) -> tuple[str, str]:
    """Return the codes of the source language and of the target language; see `language`."""
    return language(data, "source"), language(data, "target")


def language_of_side(files: Files, side: Side) -> str:
    """Return the language code of a side, from the direction of the corpus or from its file name."""
    if files.languages:
        source, target = source_and_target(files.languages)
        return source if side == "source" else target
    paths = files.source if side == "source" else files.target
    return language_of_file(Path(paths[0])) if paths else ""


def downloads_directory() -> Path:
    """Return the directory of downloaded corpora: $NMT_DATA if it is set, else data/downloads."""
    return Path(os.environ.get("NMT_DATA") or DOWNLOADS)


def data_root(root: str) -> Path:
    """Return the directory that a value of `data.root` means.

    The root is searched for in the working directory, $NMT_DATA, data/downloads and ../shared/data, in this order.
    If it is not found, it is returned unchanged. So is a root that is absolute or contains `..`.
    """
    # An empty root is the working directory.
    given = Path(root)
    if not root or given.is_absolute() or ".." in given.parts:
        return given
    for place in (given, downloads_directory() / root, DOWNLOADS / root, BESIDE / root):
        if place.is_dir():
            return place
    return given
