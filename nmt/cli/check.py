"""`nmt check`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli import options, streams
from nmt.errors import InputError

if TYPE_CHECKING:
    from nmt.corpus.reading import CorpusFiles

MAX_LINES_IN_PAGE = 1_000  # line numbers listed per finding in the HTML page
What = Annotated[list[str], typer.Argument(metavar="CONFIG [KEY=VALUE]... | SRC TGT", help="A config, or two files.")]
Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page with all findings.")]
Fix = Annotated[
    Path | None, typer.Option("--fix", metavar="DIR", help="Write cleaned copies of the files, and a list of changes.")
]


def check(
    what: What,
    show: Annotated[int, typer.Option(min=0, max=5, help="Examples of each finding.")] = 2,
    json_lines: Annotated[bool, typer.Option("--json", help="Print one JSON object with all line numbers.")] = False,
    html: Html = None,
    fix: Fix = None,
    languages: options.Languages = "",
) -> None:
    """Look for faults in parallel text before training on it.

    Reports wrong encodings, misaligned lines, wrong languages, copies, leaks between train, dev and test, and some 30
    other kinds of faults, each with line numbers, examples and advice. The exit code is 1 if a fault would spoil
    training or scores.
    """
    from nmt.corpus import render
    from nmt.corpus.check import check

    corpora, declared = corpora_of(what, languages, is_fixed=fix is not None)
    report = check(corpora, declared, quiet=streams.is_quiet())
    if json_lines:
        print(json.dumps(render.as_plain(report), ensure_ascii=False))
    else:
        for line in render.as_text(report, show):
            print(streams.printable(line))
    if html is not None:
        from nmt.insight import pages

        title = " and ".join(str(path) for side in corpora[0].sides for path in side)
        data = render.as_plain(report, MAX_LINES_IN_PAGE)
        streams.write_text(html, pages.page("check", f"{title} – nmt check", data))
    if fix is not None:
        from nmt.corpus import repair

        for one in repair.fix(report, corpora, fix):
            counts = f"{one.n_pairs:,} pairs, {one.n_changed:,} of them changed; {one.n_dropped:,} dropped"
            if one.n_realigned:
                counts += f"; {one.n_realigned:,} are of lines with different numbers"
            streams.log.info("%s: %s -> %s and %s", one.files.name, counts, *one.paths)
            if one.n_realigned:
                streams.log.info("check the copies, too: some faults show only in lines that belong together")
        streams.log.info("%s names all changed and dropped lines; the originals are as they were", fix / repair.CHANGES)
    if any(finding.severity == "error" for finding in report.findings):
        raise typer.Exit(1)


def corpora_of(what: list[str], languages: str, *, is_fixed: bool) -> tuple[list["CorpusFiles"], tuple[str, str]]:
    """Return the named corpora of one direction, train first, and their declared languages."""
    from nmt.config import chosen_direction, language, language_of, load_config
    from nmt.corpus.reading import CorpusFiles
    from nmt.train.corpora import all_corpora, corpus_paths

    if Path(what[0]).suffix in (".yaml", ".yml"):
        config = load_config(Path(what[0]), what[1:])
        if is_fixed and config.data.mix:
            message = "--fix would join data.mix with the training files, and its shares would no longer apply"
            raise InputError(message, hint="clean each corpus by itself: nmt check SRC TGT --fix DIR")
        direction = chosen_direction(config.data, config.data.targets, languages)
        joined: dict[str, CorpusFiles] = {}
        for name, files in all_corpora(config).items():
            if direction in ("", files.languages):
                part = name.partition(".")[0].replace("mix", "train")
                corpus = joined.setdefault(part, CorpusFiles(part, [], []))
                for side, paths in zip(corpus.sides, corpus_paths(config, files), strict=True):
                    side.extend(paths)
        if "train" not in joined:
            raise InputError(f"{what[0]} has no training pairs for {direction}", hint="name another direction with -l")
        of_source, _, of_target = direction.rpartition("-")
        known = language(config.data, "source"), language(config.data, "target")
        return [*joined.values()], (of_source, of_target) if direction else known
    if languages:
        raise InputError("-l chooses a direction of a config", hint="leave it out")
    if len(what) != 2:
        message = f"a config (.yaml) or two files are needed, not {' '.join(what)}"
        raise InputError(message, hint="nmt check mine.yaml, or nmt check train.de train.en")
    source, target = map(Path, what)
    return [CorpusFiles("corpus", [source], [target])], (language_of(source), language_of(target))
