"""The command `nmt check`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli import options, streams
from nmt.cli.streams import log
from nmt.errors import InputError
from nmt.languages import language_of_file, source_and_target

if TYPE_CHECKING:
    from nmt.corpus.check import CheckReport
    from nmt.corpus.reading import CorpusFiles
    from nmt.corpus.repair import CorpusRepair

MAX_LINES_IN_PAGE = 1_000  # maximum number of lines that the HTML page lists for a finding


def check(
    what: Annotated[
        list[str],
        typer.Argument(metavar="CONFIG [KEY=VALUE]... | SRC TGT | MEMORY...", help="A config, two texts, or memories."),
    ],
    show: Annotated[int, typer.Option(min=0, max=5, help="Examples of each finding.")] = 2,
    json_lines: Annotated[bool, typer.Option("--json", help="Print one JSON object with all line numbers.")] = False,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page with all findings.")] = None,
    fix: Annotated[
        Path | None,
        typer.Option("--fix", metavar="DIR", help="Write cleaned copies of the files, and a list of changes."),
    ] = None,
    languages: options.Languages = "",
) -> None:
    """Look for faults in parallel text before training on it.

    Reports some 30 kinds of faults, such as wrong encodings, misaligned lines, wrong languages, copies, and leaks
    between train, dev and test, each with line numbers, examples and advice. The exit code is 1 if a fault would spoil
    training or scores.
    """
    from nmt.corpus import render
    from nmt.corpus.check import check

    # 1. Check.
    if Path(what[0]).suffix in (".yaml", ".yml"):
        corpora, declared = corpora_of_config(Path(what[0]), what[1:], languages, is_fixed=fix is not None)
    else:
        corpora, declared = corpus_of_files(what, languages)
    report = check(corpora, declared, quiet=streams.is_quiet())
    # 2. Print the report.
    if json_lines:
        streams.print_json(render.as_plain(report))
    else:
        streams.print_lines(render.as_text(report, show))
    # 3. Write the page.
    if html is not None:
        from nmt.insight import pages

        data = render.as_plain(report, MAX_LINES_IN_PAGE)
        streams.write_text(html, pages.page("check", f"{corpora[0]} – nmt check", data))
    # 4. Write the cleaned copies.
    if fix is not None:
        from nmt.documents.memories import copy_memories, is_memory

        train, *_ = write_copies(report, corpora, fix)
        paths = list(map(Path, what))
        if all(map(is_memory, paths)):
            copy_memories(paths, fix, declared, train.paths, train.kept)
    # If a finding is an error, exit with 1, so that scripts can stop.
    if any(finding.severity == "error" for finding in report.findings):
        raise typer.Exit(1)


def write_copies(report: "CheckReport", corpora: "list[CorpusFiles]", directory: Path) -> "list[CorpusRepair]":
    """Write cleaned copies of the corpora to a directory, and log what was changed."""
    from nmt.corpus import repair

    repairs = repair.fix(report, corpora, directory)
    for mended in repairs:
        n_changed = mended.counts["changed"] + mended.counts["exchanged"]
        counts = f"{len(mended.kept):,} pairs, {n_changed:,} of them changed; {mended.counts['dropped']:,} dropped"
        if mended.n_realigned:
            counts += f"; {mended.n_realigned:,} are of lines with different numbers, so check the copies, too"
        log.info("%s: %s -> %s and %s", mended.files.name, counts, *mended.paths)
    changes = directory / repair.CHANGES
    log.info("%s names all changed and dropped lines; the originals are as they were", changes)
    return repairs


def corpora_of_config(
    file: Path, overrides: list[str], languages: str, *, is_fixed: bool
) -> tuple[list["CorpusFiles"], Sequence[str]]:
    """Return the corpora of one direction, and its source and target language. The training corpus comes first."""
    from nmt.config import chosen_direction, languages_of, load_config
    from nmt.corpus.reading import CorpusFiles
    from nmt.train.corpora import all_corpora, corpus_paths

    config = load_config(file, overrides)
    if is_fixed and config.data.mix:
        message = "--fix would join data.mix with the training files, and its shares would no longer apply"
        raise InputError(message, hint="clean each corpus by itself: nmt check SRC TGT --fix DIR")
    # A config of several languages is checked in one direction.
    direction = chosen_direction(config.data, config.data.targets, languages)
    # The files of data.mix belong to the training corpus.
    joined: dict[str, CorpusFiles] = {}
    for name, files in all_corpora(config).items():
        if direction in ("", files.languages):
            part = name.partition(".")[0].replace("mix", "train")
            corpus = joined.setdefault(part, CorpusFiles(part, [], []))
            source, target = corpus_paths(config, files)
            corpus.source.extend(source)
            corpus.target.extend(target)
    if "train" not in joined:
        raise InputError(f"{file} has no training pairs for {direction}", hint="name another direction with -l")
    declared = source_and_target(direction) if direction else languages_of(config.data)
    return list(joined.values()), declared


def corpus_of_files(names: list[str], languages: str) -> tuple[list["CorpusFiles"], Sequence[str]]:
    """Return a corpus of two files of text or of memories, and the languages that the file names declare."""
    from nmt.corpus.reading import CorpusFiles
    from nmt.documents.memories import corpus_files, is_memory

    if languages and not is_memory(Path(names[0])):
        raise InputError("-l chooses a direction of a config or the languages of a memory", hint="leave it out")
    sources, targets = corpus_files(list(map(Path, names)), source_and_target(languages))
    return [CorpusFiles("corpus", sources, targets)], (language_of_file(sources[0]), language_of_file(targets[0]))
