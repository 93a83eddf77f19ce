"""`nmt eval`."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nmt.cli import options, streams
from nmt.errors import InputError, NmtError
from nmt.files import hash_file, sha256
from nmt.text.lines import iter_lines

if TYPE_CHECKING:
    from nmt.run.directory import RunDirectory


def evaluate(
    model: options.Models = None,
    src: Annotated[Path | None, typer.Option(help="Source lines. [default: the config's data.test]")] = None,
    ref: options.References = None,
    hyp: Annotated[Path | None, typer.Option(help="Translations to score; no model is used.")] = None,
    beam: options.Beam = None,
    lowercase: options.Lowercase = False,
    tokenize: options.Tokenize = None,
    bootstrap: Annotated[int, typer.Option(min=0, max=100_000, help="Resamples for 95 % intervals, or 0.")] = 1000,
    show: Annotated[int, typer.Option(min=0, help="Print so many translations with source and reference.")] = 0,
    heads: Annotated[bool, typer.Option("--heads", help="Print statistics of each attention head.")] = False,
    json_lines: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    batch_size: options.BatchSize = None,
    precision: options.PrecisionName = None,
    engine: options.Engine = None,
    device: options.Device = "auto",
) -> None:
    """Score translations: BLEU, chrF, TER.

    Prints each score with sacreBLEU's signature and 95 % interval, and the perplexity of the references. --heads adds a
    line per attention head, with means over the pieces of the corpus (see `nmt.HeadSummary`).

    By default, the newest run translates its config's test set. -m names another model. --src and --ref name another
    test set. --hyp scores a file of translations without a model.
    """
    from nmt import evaluate
    from nmt.config import language_of

    figures: dict[str, Any] = {}
    if hyp is not None:
        of_model = {"-m": model, "--beam": beam, "--heads": heads}
        if needing := [name for name, value in of_model.items() if value]:
            raise InputError(f"--hyp uses no model, but {needing[0]} needs one", hint="leave out one of them")
        test, hypotheses = options.read_test_set(src, ref, []), list(iter_lines([hyp]))
        target_language = language_of(Path(test.reference_names[0]))
    else:
        paths, translator = options.load_translator(model, device, precision, engine, always_log=True)
        model_hash = hash_file(translator.run.model_file) if translator.run else ""  # a training may replace the file
        if ref and not src:
            raise InputError("--ref needs --src", hint="give both, or neither for the run's data.test")
        test = options.read_test_set(src, ref, [translator.run.read_config()] if translator.run else [])
        target_language = translator.target_language
        if heads:
            from nmt.insight.heads import attention_summary, table

            summaries = attention_summary(translator, list(zip(test.sources, test.references[0], strict=True)))
            figures["heads"] = [vars(summary) for summary in summaries]
        chosen = translator.with_options(**options.search_options("", beam=beam, scores=False))
        translations = translator.translate_lines(test.sources, chosen, batch_size=batch_size)
        hypotheses = [found.text for found in streams.with_bar(translations, len(test.sources))]
        figures |= {
            "models": list(map(str, paths)),
            "beam": chosen.beam,
            "engine": translator.engine_for(chosen).name,
            "perplexity": evaluate.perplexity(translator.reference_log_probs(test.sources, test.references[0])),
        }
    tokenize = tokenize or evaluate.bleu_tokenizer(target_language)
    scoring: dict[str, Any] = {"tokenize": tokenize, "lowercase": lowercase, "n_bootstrap": bootstrap}
    scores = evaluate.score(hypotheses, test.references, ("bleu", "chrf", "ter"), **scoring)
    figures = {"n_lines": len(hypotheses), **figures, "scores": [vars(score) for score in scores]}
    if hyp is None and translator.run is not None and len(paths) == 1:
        keep_scores(translator.run, model_hash, test, figures)
    if json_lines:
        print(json.dumps(figures, ensure_ascii=False))
        return
    for i in [k * len(hypotheses) // show for k in range(min(show, len(hypotheses)))]:
        source = test.sources[i] if test.sources else ""
        print(f"source       {source}\nreference    {test.references[0][i]}\ntranslation  {hypotheses[i]}\n")
    print(*scores, sep="\n")
    if hyp is None:
        print(f"engine = {figures['engine']}\nperplexity of the references = {figures['perplexity']:.3f} per piece")
    if heads:
        print("", *table(summaries), sep="\n")


def keep_scores(run: "RunDirectory", model_hash: str, test: options.TestSet, figures: dict[str, Any]) -> None:
    """Add the scores of a run's model to its scores.jsonl, which `nmt info` shows, if the run can be written to."""
    source_hash, *reference_hashes = (sha256("\n".join(side).encode()) for side in (test.sources, *test.references))
    line = {
        "source": test.source_name,
        "references": test.reference_names,
        "source_sha256": source_hash,
        "references_sha256": reference_hashes,
        "time": round(time.time(), 3),
        "model_sha256": model_hash,
        "search": {key: figures[key] for key in ("beam", "engine")},
        **{key: figures[key] for key in ("n_lines", "perplexity", "scores")},
    }
    try:
        run.append_scores(line)
    except (NmtError, OSError) as error:
        streams.log.debug("%s; the scores are not kept in the run", error)
