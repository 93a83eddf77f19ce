"""Functions that read a test set and translate it, for the commands that score."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nmt.cli import options, streams
from nmt.cli.source import check_lines
from nmt.errors import InputError
from nmt.languages import source_and_target

if TYPE_CHECKING:
    from nmt.config import Config
    from nmt.translate.options import TranslationOptions
    from nmt.translate.translator import Translator


class TestSet(NamedTuple):
    """The source lines and the references of a test set."""

    source_name: str  # file name of the source lines
    reference_names: list[str]  # file names of the references
    sources: list[str]  # the source lines; empty if only references were given
    references: list[list[str]]  # the lines of each reference


def read_test_set(
    src: Path | None,
    ref: list[Path] | None,
    configs: "Sequence[Config]",
    translator: "Translator | None",
    languages: str,
) -> TestSet:
    """Read the given files. By default, read the test set in data.test of the configs.

    `src` may be a translation memory. It is read in the languages of the translator, or of the first config, or else in
    `languages`, such as de-en or the target en.

    Raises:
        DataError: the numbers of lines differ.
        InputError: there is no test set, the configs name different ones, `src` is text and given without `ref`, or it
            is a memory and given with `ref`.
    """
    from nmt.config import languages_of
    from nmt.documents.memories import is_memory, text_files
    from nmt.evaluate import check_references

    if src and ref and is_memory(src):
        raise InputError(f"{src} is a memory, which has its own references", hint="leave --ref out")
    if src and not ref:
        config = translator.config if translator else next(iter(configs), None)
        known = languages_of(config.data) if config else source_and_target(languages)
        (src,), ref = text_files([src], known)
    # 1. Read the lines.
    if ref:
        sources = lines_of(src) if src else []
        references = list(map(lines_of, ref))
        test_set = TestSet(str(src), list(map(str, ref)), sources, references)
    else:
        test_set = configured_test_set(configs)
    # 2. Compare the numbers of lines.
    check_references(test_set.references, test_set.references[0], "lines in reference 1")
    # Given translations can be scored without source lines.
    if src or not ref:
        check_references(test_set.references, test_set.sources, "source lines")
    return test_set


def lines_of(path: Path) -> list[str]:
    """Read lines of text. Raises InputError for a document or a folder."""
    from nmt.text.lines import iter_lines

    check_lines(path, None)
    return list(iter_lines([path]))


def configured_test_set(configs: "Sequence[Config]") -> TestSet:
    """Read the test set in data.test of the configs.

    Raises InputError if the configs name different test sets or none.
    """
    from nmt.text.lines import iter_lines
    from nmt.train.corpora import corpus_paths

    corpora = []
    paths = []
    for config in configs:
        for corpus in config.data.test:
            corpora.append(corpus)
            paths.append(corpus_paths(config, corpus))
    if not corpora:
        raise InputError("--ref is missing, and no run names a data.test", hint="give --ref, for models also --src")
    # Refuse different test sets, because scores on different test sets cannot be compared.
    if any(other != paths[0] for other in paths):
        raise InputError("the runs name different test sets", hint="give --src and --ref")
    # Name the files as the config does, without data.root.
    names = " ".join(corpora[0].source), [" ".join(corpora[0].target)]
    source_files, target_files = paths[0]
    return TestSet(*names, list(iter_lines(source_files)), [list(iter_lines(target_files))])


def search_for_scores(translator: "Translator", beam: int | None) -> "TranslationOptions":
    """Return the options for the translation of a test set. Each line is translated as a whole."""
    return translator.with_options(**options.search_options(beam=beam, scores=False, whole_lines=True))


def translate_all(
    translator: "Translator", sources: Sequence[str], search: "TranslationOptions", batch_size: int | None
) -> list[str]:
    """Translate all lines, with a progress bar."""
    translations = translator.translate_lines(sources, search, batch_size=batch_size)
    return [translation.text for translation in streams.with_bar(translations, len(sources))]
