"""`nmt eval`."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from nmt.cli import options, streams
from nmt.errors import InputError, NmtError
from nmt.files import hash_file, sha256
from nmt.text.lines import read_lines

if TYPE_CHECKING:
    from nmt.decode.translator import Translator
    from nmt.run.directory import RunDirectory


class TestSet(NamedTuple):
    """Lines to translate and their references."""

    source_name: str  # the names are kept in the run's scores.jsonl
    reference_names: list[str]
    sources: list[str]
    references: list[list[str]]
    language: str  # of the references


def evaluate(
    model: options.Models = None,
    src: Annotated[Path | None, typer.Option(help="Source lines. [default: the config's data.test]")] = None,
    ref: options.References = None,
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
    lowercase: options.Lowercase = False,
    tokenize: options.Tokenize = None,
    bootstrap: Annotated[int, typer.Option(min=0, max=100_000, help="Resamples for 95 % intervals, or 0.")] = 1000,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the translations here.")] = None,
    show: Annotated[int, typer.Option(min=0, help="Print so many translations with source and reference.")] = 0,
    heads: Annotated[bool, typer.Option("--heads", help="Print statistics of each attention head.")] = False,
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

    if lang_pair is not None and test_set is None:
        raise InputError("--lang-pair needs --test-set", hint="nmt eval -t wmt14/full -l en-de")
    if test_set is not None and (src or ref):
        raise InputError("--test-set has its own source and references", hint="leave out --src and --ref")
    figures: dict[str, Any] = {"test_set": test_set} if test_set else {}
    table_of_heads: list[str] = []
    if hyp is not None:
        of_model = {"-m": model, "--beam": beam, "--mbr": mbr, "-o": output, "--heads": heads}
        if needing := [name for name, value in of_model.items() if value]:
            raise InputError(f"--hyp uses no model, but {needing[0]} needs one", hint="leave out one of them")
        test = read_test_set(None, src, ref, test_set, lang_pair)
        hypotheses = read_lines([hyp])
    else:
        search = options.search_options(
            "--mbr chrf",
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            mbr=mbr,
            n_samples=samples,
            beam=beam,
            scores=False,
        )
        paths, translator = options.load_translator(model, device, threads, precision, engine, always_log=True)
        model_hash = hash_file(translator.run.model_file) if translator.run else ""  # a training may replace the file
        test = read_test_set(translator, src, ref, test_set, lang_pair)
        of_heads, table_of_heads = figures_of_heads(translator, test, heads)
        chosen = translator.with_options(**search)
        translations = translator.translate_lines(test.sources, chosen, batch_size=batch_size)
        hypotheses = [found.text for found in streams.with_bar(translations, len(test.sources))]
        figures |= {
            "models": list(map(str, paths)),
            **of_heads,
            **chosen.model_dump(include={*options.SAMPLING, "mbr", "n_samples"} if mbr else {"beam"}),
            "engine": translator.engine.suited_to(chosen).name,
            "perplexity": evaluate.perplexity(translator.reference_log_probs(test.sources, test.references[0])),
        }
        if output is not None:
            with streams.open_output(output) as (out, _):
                out.writelines(line.encode() + b"\n" for line in hypotheses)
    tokenize = tokenize or evaluate.bleu_tokenizer(test.language)
    metrics = ("bleu", "chrf", "ter")
    scores = evaluate.score(
        hypotheses, test.references, metrics, tokenize=tokenize, lowercase=lowercase, n_bootstrap=bootstrap
    )
    figures = {"n_lines": len(hypotheses), **figures, "scores": [vars(score) for score in scores]}
    if hyp is None and translator.run is not None and len(paths) == 1:
        keep_scores(translator.run, model_hash, test, figures)
    if json_lines:
        print(json.dumps(figures, ensure_ascii=False))
        return
    for i in [k * len(hypotheses) // show for k in range(min(show, len(hypotheses)))]:
        print(f"source       {test.sources[i]}\nreference    {test.references[0][i]}\ntranslation  {hypotheses[i]}\n")
    print(*scores, sep="\n")
    if hyp is None:
        print(f"engine = {figures['engine']}\nperplexity of the references = {figures['perplexity']:.3f} per piece")
    for line in table_of_heads:
        print(line)


def read_test_set(
    translator: "Translator | None",
    src: Path | None,
    ref: list[Path] | None,
    public: str | None,
    lang_pair: str | None,
) -> TestSet:
    """Read the test set that the options name, else that of the model's run; without a model, the source may lack.

    Args:
        translator: the model; None for --hyp.
        public: name of one of sacreBLEU's test sets.
        lang_pair: its languages, by default the model's.
    """
    from nmt.config import base_languages, language, language_of
    from nmt.evaluate import check_references

    if public:
        lang_pair = lang_pair or ("-".join(base_languages(translator.config.data)) if translator else None)
        if lang_pair is None:
            raise InputError("--hyp and --test-set need --lang-pair", hint="add, for example, -l en-de")
        from nmt.corpus.test_sets import public_test_set

        streams.log.info("test set: %s, %s", public, lang_pair)
        return TestSet(public, [public], *public_test_set(public, lang_pair), lang_pair.rpartition("-")[2])
    if translator is None:
        if not ref:
            raise InputError("--hyp needs --ref", hint="nmt eval --hyp translations.en --ref test.en")
        lang = language_of(ref[0])
    else:
        lang = language(translator.config.data, "target")
        if bool(src) != bool(ref):
            raise InputError("--src and --ref go together", hint="give both, or neither for the config's data.test")
        if not ref:
            files, pairs = options.pairs_of_run(translator.run, "test", "give --src and --ref")
            names = " ".join(files.source), [" ".join(files.target)]
            return TestSet(*names, [pair.source for pair in pairs], [[pair.target for pair in pairs]], lang)
    references = [read_lines([path]) for path in ref]
    sources = read_lines([src]) if src else [""] * len(references[0])
    if src:
        check_references(references, sources, "source lines")
    return TestSet(str(src), [*map(str, ref)], sources, references, lang)


def figures_of_heads(translator: "Translator", test: TestSet, heads: bool) -> tuple[dict[str, Any], list[str]]:
    """Return the results of --heads, as JSON values and as a table."""
    if not heads:
        return {}, []
    from nmt.insight.heads import attention_summary, table

    summaries = attention_summary(translator, list(zip(test.sources, test.references[0], strict=True)))
    return {"heads": [vars(summary) for summary in summaries]}, ["", *table(summaries)]


def keep_scores(run: "RunDirectory", model_hash: str, test: TestSet, figures: dict[str, Any]) -> None:
    """Add the scores of a run's model to its scores.jsonl, which `nmt info` shows, if the run can be written to.

    Args:
        model_hash: SHA-256 of the model's file.
        figures: the results, as --json prints them.
    """
    source_hash, *reference_hashes = (sha256("\n".join(side).encode()) for side in (test.sources, *test.references))
    search = (*options.SAMPLING, "mbr", "n_samples", "beam", "engine")
    line = {
        "source": test.source_name,
        "references": test.reference_names,
        "source_sha256": source_hash,
        "references_sha256": reference_hashes,
        "time": round(time.time(), 3),
        "model_sha256": model_hash,
        "search": {key: figures[key] for key in search if key in figures},
        **{key: figures[key] for key in ("n_lines", "perplexity", "scores")},
    }
    try:
        run.append_scores(line)
    except (NmtError, OSError) as error:
        streams.log.debug("%s; the scores are not kept in the run", error)
