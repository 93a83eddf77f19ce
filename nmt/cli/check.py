"""`nmt check`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli import streams
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
) -> None:
    """Look for faults in parallel text before training on it.

    Reports wrong encodings, misaligned lines, wrong languages, copies, leaks between train, dev and test, and some 30
    other kinds of faults, each with line numbers, examples and advice. The exit code is 1 if a fault would spoil
    training or scores.
    """
    from nmt.corpus import render
    from nmt.corpus.check import check

    corpora, declared = corpora_of(what, is_fixed=fix is not None)
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
            streams.log.info("%s: %s -> %s and %s", one.files.name, counts, *one.paths)
        streams.log.info(
            "%s names all changed and dropped lines; the original files are as they were", fix / repair.CHANGES
        )
    if any(finding.severity == "error" for finding in report.findings):
        raise typer.Exit(1)


def corpora_of(what: list[str], *, is_fixed: bool) -> tuple[list["CorpusFiles"], tuple[str, str]]:
    """Return the named corpora, train first, and their declared languages."""
    from nmt.config import directions, language, language_of, load_config
    from nmt.corpus.reading import CorpusFiles
    from nmt.train.corpora import corpus_paths, named, training_paths

    if Path(what[0]).suffix in (".yaml", ".yml"):
        config = load_config(Path(what[0]), what[1:])
        if directions(config.data):
            hint = "check each by itself: nmt check SRC TGT"
            raise InputError(f"{what[0]} has corpora in several directions", hint=hint)
        if is_fixed and config.data.mix:
            message = "--fix would join data.mix with the training files, and its shares would no longer apply"
            raise InputError(message, hint="clean each corpus by itself: nmt check SRC TGT --fix DIR")
        corpora = [CorpusFiles("train", *training_paths(config))]  # includes data.mix
        others = named("dev", config.data.dev) | named("test", config.data.test)
        corpora += [CorpusFiles(name, *corpus_paths(config, files)) for name, files in others.items()]
        return corpora, (language(config.data, "source"), language(config.data, "target"))
    if len(what) != 2:
        message = f"a config (.yaml) or two files are needed, not {' '.join(what)}"
        raise InputError(message, hint="nmt check mine.yaml, or nmt check train.de train.en")
    source, target = map(Path, what)
    return [CorpusFiles("corpus", [source], [target])], (language_of(source), language_of(target))
