"""Files of pairs: translation memories, tables, catalogs of messages and archives.

`text_files` writes the pairs of memories into the user's cache as two files of text, once. So whatever reads lines also
reads memories: checks, splits, training and scores. `copy_memories` writes copies of memories after a check.
"""

import csv
import logging
import os
from codecs import getwriter
from collections.abc import Container, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from nmt.documents.memory_formats import CONTEXT, COPY_SUFFIXES, MEMORY_READERS, utf8_text
from nmt.errors import InputError
from nmt.files import ZIP_ERRORS, atomic_writer, cached
from nmt.languages import base_language, language_code
from nmt.run.directory import hash_files
from nmt.text.corpus_files import SIDES
from nmt.text.lines import iter_lines, open_bytes

log = logging.getLogger("nmt")

FORMAT = 3  # version of the files in the cache; raise it when their content changes
NOWHERE = Path(os.devnull)


def suffix_of(path: Path) -> str:
    """Return the suffix of a file in lower case, without `.gz`."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def is_memory(path: Path) -> bool:
    """Return whether a file has the suffix of a memory."""
    return suffix_of(path) in MEMORY_READERS


def corpus_files(paths: Sequence[Path], languages: Sequence[str]) -> tuple[list[Path], list[Path]]:
    """Return the source files and the target files of two texts, or of memories; see `text_files`."""
    if len(paths) == 2 and not any(map(is_memory, paths)):
        source, target = paths
        return [source], [target]
    return text_files(paths, languages)


def text_files(paths: Sequence[Path], languages: Sequence[str]) -> tuple[list[Path], list[Path]]:
    """Return a file with the sources and a file with the targets of memories, a text per line, in the user's cache.

    `languages` are the codes of source and target. If they are empty, the first memory decides.
    """
    _, source, target = memory_files(paths, languages)
    return [source], [target]


def memory_files(paths: Sequence[Path], languages: Sequence[str]) -> list[Path]:
    """Return the file with the contexts of the units, which may be blank, and the two files of `text_files`."""
    for path in paths:
        if not is_memory(path):
            raise InputError(
                f"{path} is no translation memory",
                hint=f"they end in {', '.join(MEMORY_READERS)}; of two texts, give both",
            )
    origin = [FORMAT, hash_files(paths), str(paths), *languages]
    directory = cached("memory", origin, partial(write_texts, paths, languages))
    return sorted(directory.iterdir())  # the name of each begins with what it has


def write_texts(paths: Sequence[Path], languages: Sequence[str], directory: Path) -> None:
    """Write contexts, sources and targets into three files, a unit a line. Two of the names end in language codes."""
    codes = languages if all(languages) else sides_of(paths[0], languages)
    first = paths[0].name
    names = ("contexts", f"source.{first}.{codes[0]}", f"target.{first}.{codes[-1]}")
    with ExitStack() as stack:
        files = [stack.enter_context((directory / name).open("w", encoding="utf-8")) for name in names]
        for path in paths:
            for _, texts, context in memory_pairs(path, sides_of(path, codes)):
                for file, text in zip(files, (context, *texts), strict=True):
                    print(text, file=file)


def sides_of(path: Path, languages: Sequence[str]) -> Sequence[str]:
    """Return the names of source and target in a memory: the languages, or `SIDES`, or its only two names.

    Raises InputError if it is unclear which languages of the memory are meant.
    """
    known: dict[str, str] = {}
    for _, texts in islice(memory_units(path), 1_000):  # the first units tell the languages
        for name in texts:
            known.setdefault(base_language(name), name)
    known.pop(CONTEXT, None)
    # A language that is not given is the only other one.
    wanted = [*map(base_language, languages), "", ""][:2]
    others = [name for name in filter(language_code, known) if name not in wanted]
    if wanted.count("") == len(others):
        wanted = [name or others.pop(0) for name in wanted]
    for names in (wanted, SIDES):
        keys = [known[name] for name in names if name in known]
        if len(keys) == 2:
            return keys
    problem = f"{path} has no pairs of {' and '.join(languages)}." if all(languages) else f"which languages of {path}?"
    hint = (
        "name its columns by the languages, or give two of its own: --source-lang and --target-lang, or -l de-en, or "
        "data.source_lang and data.target_lang in a config"
    )
    raise InputError(f"{problem} It has {', '.join(known) or 'none':.200}", hint=hint)


def memory_pairs(
    path: Path, names: Sequence[str], copy: Path = NOWHERE
) -> Iterator[tuple[dict[str, Any], list[str], str]]:
    """Yield the units that have texts under both names, these texts, and the context. Log the number of other units.

    For `copy`, see `memory_units`.
    """
    n_units = n_pairs = 0
    for unit, texts in memory_units(path, copy):
        n_units += 1
        pair = [texts.get(name, "") for name in names]
        if all(pair):
            n_pairs += 1
            yield unit, pair, texts.get(CONTEXT, "")
    log.info("%s: %d pairs; left out without a side or without approval: %d", path, n_pairs, n_units - n_pairs)


def memory_units(path: Path, copy: Path = NOWHERE) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """Yield each unit of a memory, and its texts without line breaks.

    The file `copy` gets the units as the caller leaves them. Without `copy`, they are empty. Raises InputError if the
    memory is damaged.
    """
    n_units = 0
    try:
        with utf8_text(open_bytes(path)) as text, atomic_writer(copy) as file:
            for unit in MEMORY_READERS[suffix_of(path)](text, getwriter("utf-8")(file), path):
                n_units += 1
                texts = {name: stripped(value) for name, value in unit.items() if isinstance(value, str)}
                if copy == NOWHERE:
                    unit.clear()  # frees the memory of XML
                yield unit, texts
    except ImportError as error:
        raise InputError(f"{error.name} is not installed", hint=f"pip install {error.name}") from error
    except (*ZIP_ERRORS, LookupError, csv.Error, SyntaxError) as error:
        raise InputError(
            f"{path} is damaged after unit {n_units:,}: {error}", hint="save it anew in UTF-8, a table as .csv"
        ) from error


def stripped(text: str) -> str:
    """Return a text on one line."""
    text.encode()  # raises UnicodeEncodeError, a ValueError, for half of a surrogate pair
    lines = map(str.strip, text.splitlines())
    return " ".join(filter(None, lines))


def copy_memories(
    paths: Sequence[Path], directory: Path, languages: Sequence[str], cleaned: Sequence[Path], kept: Container[int]
) -> None:
    """Write copies of memories with some texts changed and some units left out.

    Raises InputError if two copies would have the same name.

    Args:
        cleaned: files with the sources and with the targets of the pairs that are kept.
        kept: their numbers, counted from 1 over all memories.
    """
    texts_of_sides = [iter_lines([file]) for file in cleaned]
    new_texts = zip(*texts_of_sides, strict=True)
    n_pairs = 0
    for path in paths:
        names = sides_of(path, languages)
        suffix = COPY_SUFFIXES.get(suffix_of(path), "")
        copy = directory / f"{path.name.removesuffix('.gz')}{suffix}"
        if copy.exists():
            raise InputError(f"clean one memory after the other: two are named {path.name}")
        for unit, texts, _ in memory_pairs(path, names, copy):
            n_pairs += 1
            if n_pairs not in kept:
                unit.clear()
                continue
            changed = zip(names, texts, next(new_texts), strict=True)
            if "<" in "".join(texts):  # without its tags, a unit would match no text that has them
                continue
            for name, old, new in changed:
                if new != old:
                    unit[name] = new
        log.info("%s: cleaned -> %s", path, copy)
