"""One `nmt train`: settings inherited from a model or a run, frozen parts, changes that are refused on resume."""

import logging
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import file_bytes
from small_run import MIX, check_equal, config_of, final_hash, run_training

from nmt.config import Config
from nmt.errors import ConfigError, DataError, ModelError
from nmt.run.checkpoint import read_checkpoint
from nmt.run.directory import RunDirectory
from nmt.text.lines import iter_lines
from nmt.train import session
from nmt.train.encoding import tokenize
from nmt.train.loop import Session
from nmt.translate.loading import load


def finished(corpus: Path, run: str = "run", **changes: Any) -> Config:
    """Train a run; return its config."""
    config = config_of(corpus, run, **changes)
    run_training(config)
    return config


@pytest.mark.parametrize("parent", [True, False])
def test_fine_tuning_encodes_the_source_as_the_saved_model_does(corpus: Path, parent: bool) -> None:
    """Each model uses the NFKC setting of its own config, whichever of the two is prepared first."""
    course = {"train__max_steps": 1, "tokenizer": {"vocab_size": 340}}
    lines = [f"ＡＢＣ １２３ {line}" for line in iter_lines([corpus / "train.zh"])]  # full-width: NFKC maps it to ASCII
    (corpus / "train.zh").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    base = finished(corpus, "base", data__nfkc_source=parent, **course)
    tuned = finished(corpus, "tuned", data__nfkc_source=not parent, train__init_from=base.run, **course)
    for config, nfkc in ((tuned, not parent), (base, parent)):
        data, source = session.prepare(config).data, load(config.run, engine="torch").tokenizers.source
        assert source.nfkc is nfkc
        assert [data.ids[0][i] for i in range(9)] == [source.encode(data.pairs[i].source) for i in range(9)]


def test_placeholders_need_a_tokenizer_that_has_their_symbols(corpus: Path) -> None:
    settings = {"data__placeholders": True, "tokenizer": {"vocab_size": 360}, "train__max_steps": 1}
    base = finished(corpus, "base", **settings)
    translator = load(base.run, engine="torch")
    assert translator.options.protect_placeholders
    assert len(translator.tokenizers.source.encode("⟦1⟧⟦6⟧")) <= 3
    tuned = config_of(corpus, "tuned", train__init_from=base.run, train__max_steps=1)
    assert session.prepare(tuned.model_copy(update={"tokenizer": base.tokenizer})).config.data.placeholders
    plain = finished(corpus, "plain", **{**settings, "data__placeholders": False})
    with pytest.raises(ConfigError, match=r"^data\.placeholders and data\.glossary need a tokenizer"):
        session.prepare(config_of(corpus, "other", **settings, train__init_from=plain.run))


def test_another_corpus_is_encoded_by_the_models_tokenizer(corpus: Path) -> None:
    """No new tokenizer is trained on the other corpus, and unset settings come from the model."""
    base = finished(corpus, "base", data__nfkc_source=True, train__max_steps=1)
    for side, text in (("de", "Ein Hund rennt"), ("en", "A dog runs")):
        (corpus / f"other.{side}").write_text("".join(f"{text} {n}\n" for n in range(40)), encoding="utf-8")
    files = {"source": "other.de", "target": "other.en"}
    data = {"root": str(corpus), "train": files, "mix": MIX}
    tuned = Config.model_validate({"run": str(corpus / "tuned"), "data": data, "train": {"init_from": base.run}})
    prepared = session.prepare(tuned)
    assert prepared.tokenizers == load(base.run, engine="torch").tokenizers
    assert (prepared.config.model, prepared.config.tokenizer) == (base.model, base.tokenizer)
    assert prepared.config.data.nfkc_source
    assert prepared.data.pairs[0].source.startswith("Ein Hund")
    assert prepared.data.ids[0][0] == prepared.tokenizers.source.encode(prepared.data.pairs[0].source)


@pytest.mark.parametrize(("before", "after"), [(None, "dev"), ("dev", None), ("dev", "train")])
def test_another_dev_set_is_refused(corpus: Path, before: str | None, after: str | None) -> None:
    """Without data.dev, dev is a part of train, so adding or removing data.dev changes the training data."""

    def with_dev(name: str | None, **changes: Any) -> Any:
        dev = {"source": f"{name}.zh", "target": f"{name}.en"} if name else None
        return config_of(corpus, data__dev=dev, **changes)

    config = with_dev(before)
    run_training(config)
    trained = final_hash(config)
    with pytest.raises(DataError) as caught:
        run_training(with_dev(after, train__max_steps=14))
    assert str(caught.value) == f"the files of dev.source, dev.target are not those that {config.run} was begun with"
    assert "--fresh" in caught.value.hint
    assert final_hash(config) == trained
    assert run_training(with_dev(before, train__max_steps=14)).step == 14


@pytest.mark.parametrize("model", [True, False])
def test_a_run_without_its_checkpoints_is_not_begun_over(corpus: Path, model: bool) -> None:
    config = finished(corpus)
    shutil.rmtree(RunDirectory(config.run).checkpoints)
    if not model:
        RunDirectory(config.run).model_file.unlink()
    before = file_bytes(Path(config.run))
    with pytest.raises(ModelError) as caught:
        run_training(config)
    assert str(caught.value) == f"{config.run} holds a training but no checkpoint from which it can go on"
    assert (f"train.init_from={config.run}" in caught.value.hint) is model
    assert "--fresh" in caught.value.hint
    with pytest.raises(ModelError, match="holds a training that uses its tokenizer"):
        tokenize(config_of(corpus, tokenizer__vocab_size=320))
    assert file_bytes(Path(config.run)) == before
    assert run_training(config, fresh=True).step == 12
    assert file_bytes(Path(f"{config.run}.1")) == before


def test_another_architecture_is_refused_another_schedule_told(corpus: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nmt")
    config = finished(corpus)
    session.prepare(config_of(corpus, decode={"beam": 2}))
    assert "resumes with changed" not in caplog.text
    session.prepare(config_of(corpus, train__lr=1e-3, train__batch_tokens=200))
    changes = "train.batch_tokens was 300, is 200; train.lr was 0.003, is 0.001"
    assert f"{config.run} resumes with changed settings: {changes}" in caplog.text
    with pytest.raises(ConfigError, match="other settings: ") as caught:
        session.prepare(config_of(corpus, model__d_ff=40, seed=2, train__metric="loss", train__freeze="encoder"))
    for change in ("d_ff was 32, is 40", "seed was 1, is 2", "metric was bleu, is loss", "freeze was -, is encoder"):
        assert change in str(caught.value)


def test_a_mixture_that_has_changed_is_refused(corpus: Path) -> None:
    run_training(config_of(corpus, data__mix=MIX))
    (corpus / "other").mkdir()
    for side in ("zh", "en"):
        (corpus / f"more.{side}").rename(corpus / "other" / f"more.{side}")
    moved = {"more": {**MIX["more"], "root": str(corpus / "other")}}
    assert run_training(config_of(corpus, data__mix=moved, train__max_steps=13)).step == 13
    for mix, now in (({"more": {**moved["more"], "weight": 0.4}}, "0.4"), ({}, "-")):
        with pytest.raises(ConfigError, match=rf"data\.mix\.more\.weight was 0\.3, is {now}"):
            session.prepare(config_of(corpus, data__mix=mix))
    for side in ("zh", "en"):
        (corpus / "other" / f"more.{side}").write_text(f"{side}\n")
    with pytest.raises(DataError, match=r"the files of mix\.more\.source, mix\.more\.target are not those"):
        session.prepare(config_of(corpus, data__mix=moved))


def test_where_files_lie_and_what_is_tested_may_change(corpus: Path) -> None:
    run_training(config_of(corpus))
    train, dev = ({"source": f"{corpus}/{name}.zh", "target": f"{corpus}/{name}.en"} for name in ("train", "dev"))
    moved: dict[str, Any] = {"data__root": "", "data__train": train, "data__dev": dev, "data__test": dev}
    assert run_training(config_of(corpus, **moved, train__max_steps=13)).step == 13


def test_fine_tuning_starts_from_the_other_models_weights(corpus: Path) -> None:
    base = finished(corpus, "base", train__max_steps=1)
    weights = read_checkpoint(RunDirectory(base.run).model_file).part("model")
    for init_from in (base.run, str(RunDirectory(base.run).model_file)):
        prepared = session.prepare(config_of(corpus, "tuned", train__init_from=init_from))
        assert all(torch.equal(x, weights[name]) for name, x in prepared.model.named_parameters())
    other = config_of(corpus, "other", tokenizer__type="bpe", train__init_from=base.run)
    with pytest.raises(ConfigError, match=r"not the one asked for: tokenizer\.type is unigram, not bpe$"):
        session.prepare(other)
    tree = {"run": str(corpus / "x"), "data": base.data.model_dump(), "train": {"init_from": base.run}}
    unlike = Config.model_validate({**tree, "model": {"architecture": "rnn", "n_encoder_layers": 3}})
    with pytest.raises(ConfigError, match=r"^the settings of .* and those changed do not fit: architecture rnn needs"):
        session.prepare(unlike)
    tuned = {"train__init_from": base.run}
    run_training(config_of(corpus, "tuned", **tuned))
    Path(base.run).rename(corpus / "gone")
    assert run_training(config_of(corpus, "tuned", **tuned, train__max_steps=14)).step == 14


def test_a_shallower_model_starts_from_the_first_layers_of_the_other(corpus: Path) -> None:
    base = finished(corpus, "base", model__n_encoder_layers=2, model__n_decoder_layers=3, train__max_steps=1)
    weights = read_checkpoint(RunDirectory(base.run).model_file).part("model")

    def prepared(n_encoder_layers: int) -> Session:
        depths = {"model__n_encoder_layers": n_encoder_layers, "model__n_decoder_layers": 1}
        return session.prepare(config_of(corpus, "student", train__init_from=base.run, **depths))

    parameters = dict(prepared(2).model.named_parameters())
    assert all(torch.equal(x, weights[name]) for name, x in parameters.items())
    assert parameters.keys() == {name for name in weights if not name.startswith(("decoder.1.", "decoder.2."))}
    with pytest.raises(ModelError, match="the weights are not those of this model"):
        prepared(3)


@pytest.mark.parametrize(
    ("parts", "tied", "trained", "average"),
    [
        ("encoder", "all", {"source_embedding", "decoder", "decoder_norm"}, "none"),
        (["decoder", "output"], "none", {"source_embedding", "target_embedding", "encoder", "encoder_norm"}, "ema"),
    ],
)
def test_frozen_parts_stay_as_they_are_and_have_no_moments(
    corpus: Path, parts: str | list[str], tied: str, trained: set[str], average: str
) -> None:
    base = finished(corpus, "base", model__tied_embeddings=tied, train__max_steps=1)
    tuned = config_of(corpus, "tuned", train__init_from=base.run, train__freeze=parts, train__average=average)
    session.train(session.prepare(tuned.model_copy(update={"model": base.model})), quiet=True, n_replicas=2)
    before = read_checkpoint(RunDirectory(base.run).model_file).part("model")
    run = RunDirectory(tuned.run)
    last = read_checkpoint(run.checkpoint_file(12))
    files = [last.part("model"), read_checkpoint(run.model_file).part("model")]
    files += [last.part("average")] if average == "ema" else []
    for weights in files:
        changed = {name for name, x in weights.items() if not torch.equal(x, before[name])}
        assert {name.partition(".")[0] for name in changed} == trained
    assert {name.partition(".")[0] for name in last.part("optimizer")} == trained


def test_nothing_to_train_is_refused(corpus: Path) -> None:
    every = ["embeddings", "encoder", "decoder"]
    with pytest.raises(ConfigError, match=r"^train\.freeze leaves nothing to train$"):
        session.prepare(config_of(corpus, train__freeze=every))
    model = session.prepare(config_of(corpus, train__freeze=every, model__tied_embeddings="none")).model
    assert model.n_trainable == model.projection.weight.numel()


def test_a_model_that_no_machine_can_hold_is_refused(corpus: Path) -> None:
    with pytest.raises(ConfigError, match=r"M parameters need [\d.]+ GB to train, cpu has"):
        session.prepare(config_of(corpus, model__d_model=16384, model__d_ff=65536, model__n_encoder_layers=100))


def test_deterministic_is_torchs_deterministic_mode(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, this mode also raises errors for operations that are not deterministic."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    try:
        run_training(config_of(corpus, "run", train__max_steps=2, train__deterministic=True))
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"  # a value set by the user is kept


def rewritten(corpus: Path, name: str, old: str, new: str) -> dict[str, str]:
    """A copy of the training corpus with a character of the source replaced by another, which the tokenizer lacks."""
    source = (corpus / "train.zh").read_text(encoding="utf-8").replace(old, new)
    (corpus / f"{name}.zh").write_text(source, encoding="utf-8")
    return {"source": f"{name}.zh", "target": "train.en"}


def test_the_length_limit_of_the_training_pairs_is_in_the_model_file(corpus: Path) -> None:
    tokenizer = {"vocab_size": 340, "joint": False}
    pieces: dict[str, Any] = {"tokenizer": tokenizer, "model__tied_embeddings": "decoder"}
    prepared = session.prepare(config_of(corpus, "first", **pieces))
    source, target = prepared.data.ids
    assert (target.lengths > 1.5 * source.lengths + 11).any(), "the default would cut some"
    config = finished(corpus, **pieces, train__max_steps=1)
    translator = load(config.run, engine="torch")
    for n_source, n_target in zip(source.lengths, target.lengths, strict=True):
        assert translator.options.limit(int(n_source) + 1) > n_target


def test_a_run_that_goes_on_keeps_its_length_limit(corpus: Path) -> None:
    config = finished(corpus, train__max_steps=1)
    run = RunDirectory(config.run)
    before = run.read_config()
    older = before.decode.model_copy(update={"max_length_a": 1.5, "max_length_b": 11})
    newest = read_checkpoint(run.checkpoint_file(run.checkpoint_steps()[-1]))
    run.write_config(before.model_copy(update={"decode": older}))
    assert session.prepare(config_of(corpus, train__max_steps=2)).config.decode == older
    run.write_config(before)
    assert session.prepare(config_of(corpus, train__max_steps=2)).config.decode == newest.config.decode
    asked = session.prepare(config_of(corpus, train__max_steps=2, decode__max_length_b=70)).config.decode
    assert (asked.max_length_a, asked.max_length_b) == (newest.config.decode.max_length_a, 70)


def test_characters_that_were_taught_in_bytes_are_kept_over_several_fine_tunings(corpus: Path) -> None:
    base = finished(corpus, "base", train__max_steps=1)
    once = finished(
        corpus, "once", data__train=rewritten(corpus, "runes", "狗", "ᛋ"), train__init_from=base.run, train__max_steps=1
    )
    twice = finished(
        corpus, "twice", data__train=rewritten(corpus, "more", "猫", "ᚠ"), train__init_from=once.run, train__max_steps=1
    )
    learned = [load(config.run, engine="torch").tokenizers.source.learned for config in (base, once, twice)]
    assert learned == ["", "ᛋ", "ᚠᛋ"]
    goes_on = config_of(corpus, "twice", data__train={"source": "more.zh", "target": "train.en"}, train__max_steps=2)
    assert session.prepare(goes_on).tokenizers.source.learned == "ᚠᛋ"


def test_new_characters_of_the_target_are_not_learned_as_source(corpus: Path) -> None:
    base = finished(corpus, "base", train__max_steps=1)
    target = (corpus / "train.en").read_text(encoding="utf-8").replace("dog", "ᛋ")
    (corpus / "runes.en").write_text(target, encoding="utf-8")
    tuned = config_of(
        corpus, "tuned", data__train={"source": "train.zh", "target": "runes.en"}, train__init_from=base.run
    )
    assert session.prepare(tuned).tokenizers.source.learned == ""


def test_rare_characters_that_have_no_piece_are_learned_in_bytes(corpus: Path) -> None:
    """With a coverage below 1, pieces have frequent characters only."""
    tokenizer = {"vocab_size": 320, "character_coverage": 0.98}
    source = session.prepare(config_of(corpus, tokenizer=tokenizer)).tokenizers.source
    assert source.learned
    text = (corpus / "train.zh").read_text(encoding="utf-8").replace("\n", "")
    assert source.unknown(text) == set()
    assert source.unknown("犬") == {"犬"}


def test_a_resumed_run_has_the_same_learned_characters(corpus: Path) -> None:
    base = finished(corpus, "base", train__max_steps=1)
    changes: dict[str, Any] = {"data__train": rewritten(corpus, "runes", "狗", "ᛋ"), "train__init_from": base.run}
    whole, parts = config_of(corpus, "whole", **changes), config_of(corpus, "parts", **changes)
    run_training(whole)
    run_training(config_of(corpus, "parts", **changes, train__max_steps=5))
    run_training(parts)
    check_equal(whole, parts)
    models = [read_checkpoint(RunDirectory(config.run).model_file) for config in (whole, parts)]
    assert models[0].tokenizers.source.learned == models[1].tokenizers.source.learned == "ᛋ"
    assert models[0].config.decode == models[1].config.decode
