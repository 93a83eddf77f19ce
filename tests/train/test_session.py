"""One `nmt train`: settings inherited from a model or a run, and changes that are refused on resume."""

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import file_bytes
from small_run import config_of, final_hash, run_training, write_small_corpus

from nmt.config import Config
from nmt.decode.translator import load
from nmt.errors import DataError, ModelError
from nmt.run.directory import RunDirectory
from nmt.text.lines import read_lines
from nmt.train import session
from nmt.train.preparation import tokenize


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_small_corpus(tmp_path)


# --- fine-tuning ------------------------------------------------------------------------------------------


def wide(corpus: Path) -> Path:
    """The small corpus with full-width letters in each source line, which NFKC maps to ASCII."""
    lines = [f"ＡＢＣ １２３ {line}" for line in read_lines([corpus / "train.zh"])]
    (corpus / "train.zh").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return corpus


@pytest.mark.parametrize("parent", [True, False])
def test_fine_tuning_encodes_the_source_as_the_saved_model_does(corpus: Path, parent: bool) -> None:
    """Each model uses the NFKC setting of its own config, whichever of the two is prepared first."""
    course = {"train__max_steps": 1, "tokenizer": {"vocab_size": 340}}
    wide(corpus)
    base = config_of(corpus, "base", data__nfkc_source=parent, **course)
    run_training(base)
    tuned = config_of(corpus, "tuned", data__nfkc_source=not parent, train__init_from=base.run, **course)
    prepared = session.prepare(tuned)
    assert prepared.tokenizers.source.nfkc is not parent
    run_training(tuned)
    source = load(tuned.run).tokenizers.source
    for config in (tuned, base):
        data = session.prepare(config).data
        encode = source if config is tuned else load(base.run).tokenizers.source
        assert [data.ids[0][i] for i in range(9)] == [encode.encode(data.pairs[i].source) for i in range(9)]


def test_fine_tuning_inherits_the_normalization_of_the_source(corpus: Path) -> None:
    base = config_of(corpus, "base", data__nfkc_source=True, train__max_steps=1)
    run_training(base)
    prepared = session.prepare(config_of(corpus, "tuned", train__init_from=base.run))
    assert prepared.config.data.nfkc_source
    assert prepared.tokenizers.source.nfkc


def test_another_corpus_is_encoded_by_the_models_tokenizer(corpus: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No new tokenizer is trained on the other corpus; other languages only cause a warning."""
    base = config_of(corpus, "base", train__max_steps=1)
    run_training(base)
    for side, text in (("de", "Ein Hund rennt"), ("en", "A dog runs")):
        (corpus / f"other.{side}").write_text("".join(f"{text} {n}\n" for n in range(40)), encoding="utf-8")
    files = {"source": "other.de", "target": "other.en"}
    tree = {
        "root": str(corpus),
        "train": files,
        "mix": {"base": {"source": "train.zh", "target": "train.en", "weight": 0.5}},
    }
    tuned = Config.model_validate({"run": str(corpus / "tuned"), "data": tree, "train": {"init_from": base.run}})
    logging.getLogger("nmt").propagate = True
    prepared = session.prepare(tuned)
    model = load(base.run).tokenizers.source.model
    assert prepared.tokenizers.source.model == prepared.tokenizers.target.model == model
    assert prepared.config.model == base.model
    assert prepared.data.pairs[0].source.startswith("Ein Hund")
    assert prepared.data.ids[0][0] == prepared.tokenizers.source.encode(prepared.data.pairs[0].source)
    assert f"{base.run} translates zh to en, the pairs are de to en" in caplog.messages


# --- another dev set --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (None, "dev", "RUN was begun without data.dev"),
        ("dev", None, "RUN was begun with data.dev"),
        ("dev", "train", "the files of dev.source, dev.target are not those that RUN was begun with"),
    ],
)
def test_another_dev_set_is_refused(corpus: Path, before: str | None, after: str | None, message: str) -> None:
    """Without data.dev, dev is a part of train, so adding or removing data.dev changes the training data."""

    def with_dev(name: str | None, **changes: Any) -> Any:
        dev = {"source": f"{name}.zh", "target": f"{name}.en"} if name else None
        return config_of(corpus, data__dev=dev, **changes)

    config = with_dev(before)
    run_training(config)
    trained = final_hash(config)
    with pytest.raises(DataError) as caught:
        run_training(with_dev(after, train__max_steps=14))
    assert str(caught.value) == message.replace("RUN", config.run)
    assert "--fresh" in caught.value.hint
    assert final_hash(config) == trained
    assert run_training(with_dev(before, train__max_steps=14)).step == 14


def test_the_test_set_may_be_added_removed_and_exchanged(corpus: Path) -> None:
    tests: list[Any] = [{"source": f"{name}.zh", "target": f"{name}.en"} for name in ("train", "dev")]
    for step, test in enumerate((None, tests[0], tests[1], None), 1):
        assert run_training(config_of(corpus, data__test=test, train__max_steps=step)).step == step
    assert "test.source" not in RunDirectory(config_of(corpus).run).read_manifest()["data"]


# --- files that were deleted ------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [True, False])
def test_a_run_without_its_checkpoints_is_not_begun_over(corpus: Path, model: bool) -> None:
    config = config_of(corpus)
    run_training(config)
    shutil.rmtree(RunDirectory(config.run).checkpoints)
    if not model:
        RunDirectory(config.run).model_file.unlink()
    before = file_bytes(Path(config.run))
    with pytest.raises(ModelError) as caught:
        run_training(config)
    assert str(caught.value) == f"{config.run} holds a training but no checkpoint from which it can go on"
    assert (f"train.init_from={config.run}" in caught.value.hint) is model
    assert "--fresh" in caught.value.hint
    assert file_bytes(Path(config.run)) == before
    assert run_training(config, fresh=True).step == 12
    assert file_bytes(Path(f"{config.run}.1")) == before


def test_a_first_save_of_another_training_meanwhile_is_no_damage(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(corpus)
    run = RunDirectory(config.run)

    def none_yet(*_: Any, **__: Any) -> None:
        run.create()
        run.model_file.touch()

    monkeypatch.setattr(session, "read_newest", none_yet)
    assert session.find_start(config, run, fresh=False) == (config, None, False)


def test_tokenize_leaves_the_tokenizer_of_a_model_without_checkpoints(corpus: Path) -> None:
    config = config_of(corpus)
    run_training(config)
    shutil.rmtree(RunDirectory(config.run).checkpoints)
    before = file_bytes(Path(config.run))
    with pytest.raises(ModelError, match="holds a training that uses its tokenizer"):
        tokenize(config_of(corpus, tokenizer__vocab_size=320))
    assert file_bytes(Path(config.run)) == before
