"""One `nmt train`: settings inherited from a model or a run, frozen parts, changes that are refused on resume."""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import file_bytes
from small_run import MIX, check_equal, config_of, final_hash, run_training, write_lines

from nmt.config import Config
from nmt.errors import ConfigError, DataError, ModelError
from nmt.run.checkpoint import read_checkpoint
from nmt.run.directory import RunDirectory
from nmt.text.lines import iter_lines
from nmt.train import session
from nmt.train.encoding import tokenize
from nmt.translate.loading import load


def finished(corpus: Path, run: str = "run", **changes: Any) -> Config:
    """Train a run; return its config."""
    config = config_of(corpus, run, **changes)
    run_training(config)
    return config


def weights_of(config: Config) -> dict[str, torch.Tensor]:
    return read_checkpoint(RunDirectory(config.run).model_file).part("model")


@pytest.mark.parametrize("parent", [True, False])
def test_fine_tuning_encodes_the_source_as_the_saved_model_does(corpus: Path, parent: bool) -> None:
    """Each model uses the NFKC setting of its own config, whichever of the two is prepared first."""
    # NFKC maps full-width characters to ASCII.
    lines = [f"ＡＢＣ １２３ {line}\n" for line in iter_lines([corpus / "train.zh"])]
    (corpus / "train.zh").write_text("".join(lines), encoding="utf-8")
    base = finished(corpus, "base", data__nfkc_source=parent, train__max_steps=1)
    tuned = finished(corpus, "tuned", data__nfkc_source=not parent, train__init_from=base.run, train__max_steps=1)
    for config, nfkc in ((tuned, not parent), (base, parent)):
        data = session.prepare(config).data
        source = load(config.run, engine="torch").tokenizers.source
        assert source.nfkc is nfkc
        first = data.pairs[0]
        source_ids, _ = data.ids
        assert source_ids[0] == source.encode(first.source)


SYMBOLS: dict[str, Any] = {"data__placeholders": True, "tokenizer": {"vocab_size": 360}, "train__max_steps": 1}


def test_a_model_with_placeholders_is_fine_tuned_with_them(corpus: Path) -> None:
    base = finished(corpus, "base", **SYMBOLS)
    translator = load(base.run, engine="torch")
    assert translator.options.protect_placeholders
    assert len(translator.tokenizers.source.encode("⟦1⟧⟦6⟧")) <= 3
    tuned = config_of(corpus, "tuned", train__init_from=base.run, tokenizer=base.tokenizer)
    assert session.prepare(tuned).config.data.placeholders


def test_placeholders_need_a_tokenizer_that_has_their_symbols(corpus: Path) -> None:
    plain = finished(corpus, "plain", tokenizer=SYMBOLS["tokenizer"], train__max_steps=1)
    with pytest.raises(ConfigError, match=r"^data\.placeholders and data\.glossary need a tokenizer"):
        session.prepare(config_of(corpus, "other", **SYMBOLS, train__init_from=plain.run))


def test_another_corpus_is_encoded_by_the_models_tokenizer(corpus: Path) -> None:
    """No new tokenizer is trained on the other corpus, and unset settings come from the model."""
    base = finished(corpus, "base", data__nfkc_source=True, train__max_steps=1)
    # Numbers, so that pairs differ.
    write_lines(corpus / "other.de", [f"Ein Hund rennt {n}" for n in range(40)])
    write_lines(corpus / "other.en", [f"A dog runs {n}" for n in range(40)])
    data = {"root": str(corpus), "train": {"source": "other.de", "target": "other.en"}, "mix": MIX}
    tree = {"run": str(corpus / "tuned"), "data": data, "train": {"init_from": base.run}}
    prepared = session.prepare(Config.model_validate(tree))
    assert prepared.tokenizers == load(base.run, engine="torch").tokenizers
    # Unset settings.
    assert prepared.config.model == base.model
    assert prepared.config.tokenizer == base.tokenizer
    assert prepared.config.data.nfkc_source
    # The corpus.
    first = prepared.data.pairs[0]
    assert first.source.startswith("Ein Hund")
    source_ids, _ = prepared.data.ids
    assert source_ids[0] == prepared.tokenizers.source.encode(first.source)


@pytest.mark.parametrize(("before", "after"), [(None, "dev"), ("dev", None), ("dev", "train")])
def test_another_dev_set_is_refused(corpus: Path, before: str | None, after: str | None) -> None:
    """Without data.dev, dev is a part of train, so adding or removing data.dev changes the training data."""

    def with_dev(name: str | None, max_steps: int) -> Config:
        dev = None
        if name:
            dev = {"source": f"{name}.zh", "target": f"{name}.en"}
        return config_of(corpus, data__dev=dev, train__max_steps=max_steps)

    config = with_dev(before, 12)
    run_training(config)
    trained = final_hash(config)
    with pytest.raises(DataError) as caught:
        run_training(with_dev(after, 14))
    result = str(caught.value)
    assert result == f"the files of dev.source, dev.target are not those that {config.run} was begun with"
    assert "--fresh" in caught.value.hint
    # Nothing has changed, and with the old set it goes on.
    assert final_hash(config) == trained
    assert run_training(with_dev(before, 14)).step == 14


@pytest.mark.parametrize("has_model", [True, False])
def test_a_run_without_its_checkpoints_is_not_begun_over(corpus: Path, has_model: bool) -> None:
    config = finished(corpus)
    shutil.rmtree(RunDirectory(config.run).checkpoints)
    if not has_model:
        RunDirectory(config.run).model_file.unlink()
    before = file_bytes(Path(config.run))
    with pytest.raises(ModelError) as caught:
        run_training(config)
    assert str(caught.value) == f"{config.run} holds a training but no checkpoint from which it can go on"
    assert "train.init_from=" in caught.value.hint
    assert "--fresh" in caught.value.hint
    assert file_bytes(Path(config.run)) == before
    # With --fresh, it is moved aside.
    assert run_training(config, fresh=True).step == 12
    result = file_bytes(Path(f"{config.run}.1"))
    assert result == before


def test_the_tokenizer_of_a_training_is_not_replaced(corpus: Path) -> None:
    finished(corpus, train__max_steps=1)
    with pytest.raises(ModelError, match="holds a training that uses its tokenizer"):
        tokenize(config_of(corpus, tokenizer__vocab_size=320))


def test_another_architecture_is_refused(corpus: Path) -> None:
    finished(corpus)
    train = {"metric": "loss", "freeze": "encoder", "init_from": "x"}
    with pytest.raises(ConfigError, match="other settings: ") as caught:
        session.prepare(config_of(corpus, model__d_ff=40, seed=2, train=train))
    message = str(caught.value)
    for change in (
        "d_ff was 32, is 40",
        "seed was 1, is 2",
        "metric was bleu, is loss",
        "freeze was -, is encoder",
        "init_from was -, is x",
    ):
        assert change in message


def test_another_schedule_is_allowed(corpus: Path) -> None:
    finished(corpus)
    prepared = session.prepare(config_of(corpus, train__lr=1e-3, train__batch_tokens=200, decode={"beam": 2}))
    assert prepared.config.train.lr == 1e-3


def moved_mixture(corpus: Path) -> dict[str, Any]:
    """Move the files of `MIX` into another directory; return the setting that names them."""
    (corpus / "other").mkdir()
    (corpus / "more.zh").rename(corpus / "other" / "more.zh")
    (corpus / "more.en").rename(corpus / "other" / "more.en")
    return {"more": {**MIX["more"], "root": str(corpus / "other")}}


def test_the_files_of_a_mixture_may_move_but_not_change(corpus: Path) -> None:
    run_training(config_of(corpus, data__mix=MIX))
    moved = moved_mixture(corpus)
    result = run_training(config_of(corpus, data__mix=moved, train__max_steps=13)).step
    assert result == 13
    (corpus / "other" / "more.zh").write_text("狗\n")
    (corpus / "other" / "more.en").write_text("dog\n")
    with pytest.raises(DataError, match=r"the files of mix\.more\.source, mix\.more\.target are not those"):
        session.prepare(config_of(corpus, data__mix=moved))


def test_another_weight_of_a_mixture_is_refused(corpus: Path) -> None:
    run_training(config_of(corpus, data__mix=MIX, train__max_steps=1))
    heavier = {"more": {**MIX["more"], "weight": 0.4}}
    with pytest.raises(ConfigError, match=r"data\.mix\.more\.weight was 0\.3, is 0\.4"):
        session.prepare(config_of(corpus, data__mix=heavier))


def test_where_files_lie_and_what_is_tested_may_change(corpus: Path) -> None:
    run_training(config_of(corpus))
    train = {"source": f"{corpus}/train.zh", "target": f"{corpus}/train.en"}
    dev = {"source": f"{corpus}/dev.zh", "target": f"{corpus}/dev.en"}
    moved = config_of(corpus, data__root="", data__train=train, data__dev=dev, data__test=dev, train__max_steps=13)
    assert run_training(moved).step == 13


@pytest.mark.parametrize("name", ["base", "base/model.safetensors"])
def test_fine_tuning_starts_from_the_other_models_weights(corpus: Path, name: str) -> None:
    weights = weights_of(finished(corpus, "base", train__max_steps=1))
    config = config_of(corpus, "tuned", train__init_from=str(corpus / name))
    model = session.prepare(config).model
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, weights[name])


def test_fine_tuning_with_another_tokenizer_is_refused(corpus: Path) -> None:
    base = finished(corpus, "base", train__max_steps=1)
    with pytest.raises(ConfigError, match=r"brings a tokenizer that is not the one asked for$"):
        session.prepare(config_of(corpus, tokenizer__type="bpe", train__init_from=base.run))


def test_settings_that_do_not_go_with_those_of_the_other_model_are_refused(corpus: Path) -> None:
    base = finished(corpus, "base", train__max_steps=1)
    # The base has one layer per side, as an rnn needs; not this one.
    model = {"architecture": "rnn", "n_encoder_layers": 3}
    tree = {"run": str(corpus / "x"), "data": base.data.model_dump(), "train": {"init_from": base.run}}
    unlike = Config.model_validate({**tree, "model": model})
    with pytest.raises(ConfigError, match=r"^the settings of .* and those changed: architecture rnn needs"):
        session.prepare(unlike)


def test_a_fine_tuning_is_resumed_without_the_other_model(corpus: Path) -> None:
    base = finished(corpus, "base", train__max_steps=1)
    finished(corpus, "tuned", train__init_from=base.run)
    # The checkpoint has all that it needs.
    Path(base.run).rename(corpus / "gone")
    longer = config_of(corpus, "tuned", train__init_from=base.run, train__max_steps=14)
    assert run_training(longer).step == 14


def test_a_shallower_model_starts_from_the_first_layers_of_the_other(corpus: Path) -> None:
    base = finished(corpus, "base", model__n_encoder_layers=2, model__n_decoder_layers=3, train__max_steps=1)
    weights = weights_of(base)
    student = config_of(corpus, train__init_from=base.run, model__n_encoder_layers=2, model__n_decoder_layers=1)
    for name, parameter in session.prepare(student).model.named_parameters():
        assert torch.equal(parameter, weights.pop(name))
    # What is left is of layers that the student lacks.
    assert all(name.startswith(("decoder.1.", "decoder.2.")) for name in weights)


def test_a_deeper_model_does_not_start_from_the_other(corpus: Path) -> None:
    base = finished(corpus, "base", train__max_steps=1)
    deeper = config_of(corpus, "deeper", train__init_from=base.run, model__n_encoder_layers=3)
    with pytest.raises(ModelError, match="the weights are not those of this model"):
        session.prepare(deeper)


def parts_of(names: Iterable[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


def test_a_frozen_encoder_stays_as_it_is_and_has_no_moments(corpus: Path) -> None:
    trained = {"source_embedding", "decoder", "decoder_norm"}
    check_trained(corpus, trained, train__freeze="encoder")


def test_a_frozen_decoder_stays_as_it_is_and_has_no_moments(corpus: Path) -> None:
    trained = {"source_embedding", "target_embedding", "encoder", "encoder_norm"}
    check_trained(corpus, trained, train__freeze=["decoder", "output"], model__tied_embeddings="none")


def check_trained(corpus: Path, trained: set[str], **settings: Any) -> None:
    """Check that a fine-tuning with these settings changes these parts, and no others."""
    base = finished(corpus, "base", train__max_steps=1, **settings)
    before = weights_of(base)
    tuned = config_of(corpus, "tuned", train__init_from=base.run, **settings)
    run_training(tuned, n_replicas=2)
    newest = read_checkpoint(RunDirectory(tuned.run).checkpoint_file(12))
    average = newest.part("average")
    for weights in (newest.part("model"), average, weights_of(tuned)):
        same = [name for name in weights if torch.equal(weights[name], before[name])]
        assert parts_of(weights.keys() - same) == trained
    # Moments.
    assert parts_of(newest.part("optimizer")) == trained


def test_nothing_to_train_is_refused(corpus: Path) -> None:
    with pytest.raises(ConfigError, match=r"^train\.freeze leaves nothing to train$"):
        session.prepare(config_of(corpus, train__freeze=["embeddings", "encoder", "decoder"]))


def test_the_projection_alone_is_trained(corpus: Path) -> None:
    frozen = ["embeddings", "encoder", "decoder"]
    config = config_of(corpus, train__freeze=frozen, model__tied_embeddings="none")
    model = session.prepare(config).model
    assert model.n_trainable == model.projection.weight.numel()


def test_a_model_that_no_machine_can_hold_is_refused(corpus: Path) -> None:
    config = config_of(corpus, model__d_model=16384, model__d_ff=65536, model__n_encoder_layers=100)
    with pytest.raises(ConfigError, match=r"M parameters need [\d.]+ GB to train, cpu has"):
        session.prepare(config)


def test_deterministic_is_torchs_deterministic_mode(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, this mode also raises errors for operations that are not deterministic."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    try:
        run_training(config_of(corpus, train__max_steps=2, train__deterministic=True))
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"  # a value set by the user is kept


def test_a_tokenized_dev_text_is_one_warning(corpus: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("dev.zh", "dev.en"):
        write_lines(corpus / name, [name + " ."] * 100)
    run_training(config_of(corpus, train__max_steps=1))
    assert caplog.text.count("end in ' .'") == 1


def test_the_length_limit_of_the_training_pairs_is_in_the_model_file(corpus: Path) -> None:
    pieces: dict[str, Any] = {"tokenizer__joint": False, "model__tied_embeddings": "decoder"}
    source, target = session.prepare(config_of(corpus, "first", **pieces)).data.ids
    default = 1.5 * source.lengths + 11
    # The default limit is too low for some targets.
    assert (target.lengths > default).any()
    run = finished(corpus, **pieces, train__max_steps=1).run
    options = load(run, engine="torch").options
    # EOS counts.
    limits = [options.limit(n) for n in (source.lengths + 1).tolist()]
    assert (target.lengths < limits).all()


def test_a_run_that_goes_on_keeps_its_length_limit(corpus: Path) -> None:
    run = RunDirectory(finished(corpus, train__max_steps=1).run)
    config = run.read_config()
    limit = config.decode.model_copy(update={"max_length_a": 1.25, "max_length_b": 77})
    run.write_config(config.model_copy(update={"decode": limit}))
    more = session.prepare(config_of(corpus, train__max_steps=2))
    assert more.config.decode == limit
    # Unless the user sets a part of it.
    asked = session.prepare(config_of(corpus, train__max_steps=2, decode__max_length_b=70))
    assert asked.config.decode.max_length_a == 1.25
    assert asked.config.decode.max_length_b == 70


def rewritten(corpus: Path, name: str, old: str, new: str) -> dict[str, str]:
    """Write the training corpus with a character of the source replaced by another, which the tokenizer lacks."""
    source = (corpus / "train.zh").read_text(encoding="utf-8")
    replaced = source.replace(old, new)
    (corpus / f"{name}.zh").write_text(replaced, encoding="utf-8")
    return {"source": f"{name}.zh", "target": "train.en"}


def learned(config: Config) -> str | None:
    """Return the characters that a trained model has learned in bytes."""
    return load(config.run, engine="torch").tokenizers.source.learned


def test_characters_that_were_taught_in_bytes_are_kept_over_several_fine_tunings(corpus: Path) -> None:
    base = finished(corpus, "base", train__max_steps=1)
    runes = rewritten(corpus, "runes", "狗", "ᛋ")
    once = finished(corpus, "once", data__train=runes, train__init_from=base.run, train__max_steps=1)
    more = rewritten(corpus, "more", "猫", "ᚠ")
    twice = finished(corpus, "twice", data__train=more, train__init_from=once.run, train__max_steps=1)
    assert learned(base) == ""
    assert learned(once) == "ᛋ"
    assert learned(twice) == "ᚠᛋ"


def test_new_characters_of_the_target_are_not_learned_as_source(corpus: Path) -> None:
    base = finished(corpus, "base", train__max_steps=1)
    target = (corpus / "train.en").read_text(encoding="utf-8")
    (corpus / "runes.en").write_text(target.replace("dog", "ᛋ"), encoding="utf-8")
    train = {"source": "train.zh", "target": "runes.en"}
    tuned = config_of(corpus, "tuned", data__train=train, train__init_from=base.run)
    assert session.prepare(tuned).tokenizers.source.learned == ""


def test_rare_characters_that_have_no_piece_are_learned_in_bytes(corpus: Path) -> None:
    """With a coverage below 1, pieces have frequent characters only."""
    tokenizer = {"vocab_size": 320, "character_coverage": 0.98}
    source = session.prepare(config_of(corpus, tokenizer=tokenizer)).tokenizers.source
    assert source.learned
    text = (corpus / "train.zh").read_text(encoding="utf-8")
    result = source.characters.unknown(text.replace("\n", ""))
    assert result == set()
    assert source.characters.unknown("犬") == {"犬"}


def test_a_resumed_run_has_the_same_learned_characters(corpus: Path) -> None:
    base = finished(corpus, "base", train__max_steps=1)
    runes = rewritten(corpus, "runes", "狗", "ᛋ")
    changes: dict[str, Any] = {"data__train": runes, "train__init_from": base.run}
    whole = finished(corpus, "whole", **changes)
    finished(corpus, "parts", **changes, train__max_steps=5)
    parts = finished(corpus, "parts", **changes)
    check_equal(whole, parts)
    assert learned(whole) == learned(parts) == "ᛋ"
