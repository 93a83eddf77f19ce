"""`nmt eval`."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nmt.cli import options, streams
from nmt.errors import InputError, NmtError
from nmt.files import hash_file, sha256
from nmt.text.lines import read_lines

if TYPE_CHECKING:
    from nmt.decode.translator import Translator
    from nmt.run.directory import RunDirectory

TestSet = tuple[list[str], list[list[str]], str]  # source lines, references, target language
PublicSet = tuple[str, str]  # name and language pair of one of sacreBLEU's test sets


def evaluate(
    model: options.Models = None,
    src: Annotated[Path | None, typer.Option(help="Source lines. [default: the config's data.test]")] = None,
    ref: Annotated[list[Path] | None, typer.Option(help="Reference lines; repeat it for several.")] = None,
    hyp: Annotated[Path | None, typer.Option(help="Translations to score; no model is used.")] = None,
    test_set: Annotated[
        str | None, typer.Option("--test-set", "-t", help="One of sacreBLEU's test sets: wmt14/full, ...")
    ] = None,
    lang_pair: Annotated[
        str | None, typer.Option("--lang-pair", "-l", metavar="SRC-TGT", help="Of -t. [default: the model's]")
    ] = None,
    beam: options.Beam = None,
    mbr: options.Mbr = None,
    samples: options.Samples = None,
    temperature: options.Temperature = 1.0,
    top_k: options.TopK = 0,
    top_p: options.TopP = 1.0,
    seed: options.Seed = 1,
    lowercase: Annotated[bool, typer.Option(help="Ignore case.")] = False,
    tokenize: Annotated[str | None, typer.Option(help="sacreBLEU's: 13a, zh, char, ... [default: by language]")] = None,
    bootstrap: Annotated[int, typer.Option(min=0, max=100_000, help="Resamples for 95 % intervals, or 0.")] = 1000,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the translations here.")] = None,
    show: Annotated[int, typer.Option(min=0, help="Print so many translations with source and reference.")] = 0,
    heads: Annotated[bool, typer.Option("--heads", help="Print statistics of each attention head.")] = False,
    ablate_each: Annotated[
        bool, typer.Option("--ablate-each", help="Print the BLEU of greedy search without each attention head.")
    ] = False,
    json_lines: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    batch_size: options.BatchSize = None,
    precision: options.PrecisionName = None,
    engine: options.Engine = None,
    device: options.Device = "auto",
    threads: options.Threads = 0,
) -> None:
    """Score translations: BLEU, chrF, TER.

    Prints each score with sacreBLEU's signature and 95 % interval, and the perplexity of the references. --heads adds a
    line per attention head, with means over the pieces of the corpus (see `nmt.HeadSummary`).

    By default, the newest run translates its config's test set. -m names another model. --src and --ref name another
    test set; or -t, one that sacreBLEU downloads. --hyp scores a file of translations without a model.
    """
    from nmt import evaluate

    public = check_public(test_set, lang_pair, src, ref)
    figures: dict[str, Any] = {"test_set": test_set} if public else {}
    tables: list[list[str]] = []
    if hyp is not None:
        of_model = {"-m": model, "--beam": beam, "--mbr": mbr, "-o": output, "--heads": heads}
        of_model["--ablate-each"] = ablate_each
        needing_model = [name for name, value in of_model.items() if value]
        sources, references, lang = read_given(src, ref, public, needing_model)
        hypotheses = read_lines([hyp])
    else:
        search: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
        search |= {"mbr": mbr, "n_samples": samples, "beam": beam, "scores": False}
        options.check_search(search, "--mbr chrf")
        paths, translator = options.load_translator(model, device, threads, precision, engine, always_log=True)
        model_hash = hash_file(translator.run.model_file) if translator.run else ""  # a training may replace the file
        sources, references, lang = read_test_set(translator, src, ref, public)
        evaluate.check_references(references, sources, "source lines")
        of_heads, tables = figures_of_heads(translator, sources, references, heads, ablate_each)
        figures |= {"models": list(map(str, paths)), **of_heads}
        chosen = translator.with_options(**{name: value for name, value in search.items() if value is not None})
        translations = translator.translate_lines(sources, chosen, batch_size=batch_size)
        hypotheses = [found.text for found in streams.with_bar(translations, len(sources))]
        perplexity = evaluate.perplexity(translator.reference_log_probs(sources, references[0]))
        figures |= {
            **chosen.model_dump(include={*options.SAMPLING, "mbr", "n_samples"} if mbr else {"beam"}),
            "engine": translator.engine.suited_to(chosen).name,
            "perplexity": perplexity,
        }
        if output is not None:
            with streams.open_output(output) as (out, _):
                out.writelines(line.encode() + b"\n" for line in hypotheses)
    tokenize = tokenize or evaluate.bleu_tokenizer(lang)
    scores = evaluate.score(
        hypotheses, references, ("bleu", "chrf", "ter"), tokenize=tokenize, lowercase=lowercase, n_bootstrap=bootstrap
    )
    figures = {"n_lines": len(hypotheses), **figures, "scores": [vars(score) for score in scores]}
    if hyp is None and translator.run is not None and len(paths) == 1:
        keep_scores(translator.run, model_hash, (src, ref), (sources, references), figures)
    if json_lines:
        print(json.dumps(figures, ensure_ascii=False))
        return
    print_samples(sources, references[0], hypotheses, show)
    print(*scores, sep="\n")
    print_figures(figures, tables)


def print_samples(sources: list[str], references: list[str], hypotheses: list[str], n: int) -> None:
    for i in [k * len(hypotheses) // n for k in range(min(n, len(hypotheses)))]:
        print(f"source       {sources[i]}\nreference    {references[i]}\ntranslation  {hypotheses[i]}\n")


def print_figures(figures: dict[str, Any], tables: list[list[str]]) -> None:
    """Print engine and perplexity, if known, and the tables."""
    if "engine" in figures:
        print(f"engine = {figures['engine']}")
    if "perplexity" in figures:
        print(f"perplexity of the references = {figures['perplexity']:.3f} per piece")
    for lines in tables:
        print("", *lines, sep="\n")


def keep_scores(
    run: "RunDirectory",
    model_hash: str,
    files: tuple[Path | None, list[Path] | None],
    lines: tuple[list[str], list[list[str]]],
    figures: dict[str, Any],
) -> None:
    """Add the scores of a run's model to its scores.jsonl, which `nmt info` shows, if the run can be written to.

    Args:
        run: the run whose model was evaluated.
        model_hash: SHA-256 of the model's file.
        files: --src and --ref; None stands for the config's data.test.
        lines: source lines, and the lines of each reference.
        figures: the results, as --json prints them.
    """
    (src, ref), (sources, references) = files, lines
    hashes = [sha256("\n".join(side).encode()) for side in (sources, *references)]
    about: dict[str, Any] = {"source_sha256": hashes[0], "references_sha256": hashes[1:]}
    try:
        test = run.read_config().data.test
        if "test_set" in figures:
            about |= {"source": figures["test_set"], "references": [figures["test_set"]]}
        elif src and ref:
            about |= {"source": str(src), "references": list(map(str, ref))}
        elif test:
            about |= {"source": " ".join(test.source), "references": [" ".join(test.target)]}
        about |= {"time": round(time.time(), 3), "model_sha256": model_hash}
        names = (*options.SAMPLING, "mbr", "n_samples", "beam", "engine")
        search = {key: figures[key] for key in names if key in figures}
        found = {key: figures[key] for key in ("n_lines", "perplexity", "scores")}
        run.append_scores({**about, "search": search, **found})
    except (NmtError, OSError) as error:
        streams.log.debug("%s; the scores are not kept in the run", error)


def figures_of_heads(
    translator: "Translator", sources: list[str], references: list[list[str]], heads: bool, ablate_each: bool
) -> tuple[dict[str, Any], list[list[str]]]:
    """Return the results of --heads and --ablate-each, as JSON values and as tables."""
    figures: dict[str, Any] = {}
    tables: list[list[str]] = []
    if heads:
        from nmt.insight.heads import attention_summary, table

        summaries = attention_summary(translator, list(zip(sources, references[0], strict=True)))
        figures["heads"] = [vars(summary) for summary in summaries]
        tables.append(table(summaries))
    if ablate_each:
        from nmt.insight import ablation

        figures["bleu_without"] = ablation.bleu_without_each(translator, sources, references)
        tables.append(ablation.table(figures["bleu_without"]))
    return figures, tables


def check_public(
    test_set: str | None, lang_pair: str | None, src: Path | None, ref: list[Path] | None
) -> PublicSet | None:
    """Return the test set of -t and -l, or None; "" stands for the model's languages. Refuses contradictions."""
    if test_set is None:
        if lang_pair is not None:
            raise InputError("--lang-pair needs --test-set", hint="nmt eval -t wmt14/full -l en-de")
        return None
    if src is not None or ref:
        raise InputError("--test-set has its own source and references", hint="leave out --src and --ref")
    return test_set, lang_pair or ""


def languages_of(translator: "Translator") -> str:
    """Return the model's language pair in sacreBLEU's notation: en-de."""
    from nmt.config import base_languages

    return "-".join(base_languages(translator.config.data))


def read_public(public: PublicSet) -> TestSet:
    from nmt.corpus.test_sets import public_test_set

    streams.log.info("test set: %s, %s", *public)
    return *public_test_set(*public), public[1].rpartition("-")[2]


def read_given(src: Path | None, ref: list[Path] | None, public: PublicSet | None, needing_model: list[str]) -> TestSet:
    """Read the test set for --hyp. Refuses options that need a model."""
    from nmt.config import language_of
    from nmt.evaluate import check_references

    if needing_model:
        raise InputError(f"--hyp uses no model, but {needing_model[0]} needs one", hint="leave out one of them")
    if public:
        if not public[1]:
            raise InputError("--hyp and --test-set need --lang-pair", hint="add, for example, -l en-de")
        return read_public(public)
    if not ref:
        raise InputError("--hyp needs --ref", hint="nmt eval --hyp translations.en --ref test.en")
    references = [read_lines([path]) for path in ref]
    sources = read_lines([src]) if src is not None else [""] * len(references[0])
    if src is not None:
        check_references(references, sources, "source lines")
    return sources, references, language_of(ref[0])


def read_test_set(
    translator: "Translator", src: Path | None, ref: list[Path] | None, public: PublicSet | None
) -> TestSet:
    """Read the test set that the options name, else the test set of the model's run."""
    from nmt.config import language
    from nmt.train.preparation import corpus_paths

    if public:
        return read_public((public[0], public[1] or languages_of(translator)))
    lang = language(translator.config.data, "target")
    if src is not None and ref:
        return read_lines([src]), [read_lines([path]) for path in ref], lang
    if src is not None or ref:
        raise InputError("--src and --ref go together", hint="give both, or neither for the config's data.test")
    config = translator.run.read_config() if translator.run is not None else None
    if config is None or config.data.test is None:
        raise InputError("the model's run names no data.test", hint="give --src and --ref")
    source_files, target_files = corpus_paths(config, config.data.test)
    return read_lines(source_files), [read_lines(target_files)], lang
