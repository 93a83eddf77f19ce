"""One `nmt train`: settings inherited from a model or a run, and changes that are refused on resume."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import file_bytes
from small_run import MIX, config_of, final_hash, run_training

from nmt.config import Config
from nmt.decode.translator import load
from nmt.errors import ConfigError, DataError, ModelError
from nmt.run.directory import RunDirectory
from nmt.text.lines import iter_lines
from nmt.train import session
from nmt.train.preparation import tokenize


@pytest.mark.parametrize("parent", [True, False])
def test_fine_tuning_encodes_the_source_as_the_saved_model_does(corpus: Path, parent: bool) -> None:
    """Each model uses the NFKC setting of its own config, whichever of the two is prepared first."""
    course = {"train__max_steps": 1, "tokenizer": {"vocab_size": 340}}
    lines = [f"ＡＢＣ １２３ {line}" for line in iter_lines([corpus / "train.zh"])]  # full-width: NFKC maps it to ASCII
    (corpus / "train.zh").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    base = config_of(corpus, "base", data__nfkc_source=parent, **course)
    run_training(base)
    tuned = config_of(corpus, "tuned", data__nfkc_source=not parent, train__init_from=base.run, **course)
    run_training(tuned)
    for config, nfkc in ((tuned, not parent), (base, parent)):
        data, source = session.prepare(config).data, load(config.run, engine="torch").tokenizers.source
        assert source.nfkc is nfkc
        assert [data.ids[0][i] for i in range(9)] == [source.encode(data.pairs[i].source) for i in range(9)]


def test_placeholders_need_a_tokenizer_that_has_their_symbols(corpus: Path) -> None:
    settings = {"data__placeholders": True, "tokenizer": {"vocab_size": 360}, "train__max_steps": 1}
    base = config_of(corpus, "base", **settings)
    run_training(base)
    translator = load(base.run, engine="torch")
    assert translator.protected
    assert len(translator.tokenizers.source.encode("⟦1⟧⟦6⟧")) <= 3
    tuned = config_of(corpus, "tuned", train__init_from=base.run, train__max_steps=1)
    assert session.prepare(tuned.model_copy(update={"tokenizer": base.tokenizer})).config.data.placeholders
    plain = config_of(corpus, "plain", **{**settings, "data__placeholders": False})
    run_training(plain)
    with pytest.raises(ConfigError, match=r"^data\.placeholders, data\.glossary and data\.context need a tokenizer"):
        session.prepare(config_of(corpus, "other", **settings, train__init_from=plain.run))


def test_another_corpus_is_encoded_by_the_models_tokenizer(corpus: Path) -> None:
    """No new tokenizer is trained on the other corpus, and unset settings come from the model."""
    base = config_of(corpus, "base", data__nfkc_source=True, train__max_steps=1)
    run_training(base)
    for side, text in (("de", "Ein Hund rennt"), ("en", "A dog runs")):
        (corpus / f"other.{side}").write_text("".join(f"{text} {n}\n" for n in range(40)), encoding="utf-8")
    files = {"source": "other.de", "target": "other.en"}
    data = {"root": str(corpus), "train": files, "mix": MIX}
    tuned = Config.model_validate({"run": str(corpus / "tuned"), "data": data, "train": {"init_from": base.run}})
    prepared = session.prepare(tuned)
    assert prepared.tokenizers == load(base.run, engine="torch").tokenizers
    assert prepared.config.model == base.model
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
    with pytest.raises(ModelError, match="holds a training that uses its tokenizer"):
        tokenize(config_of(corpus, tokenizer__vocab_size=320))
    assert file_bytes(Path(config.run)) == before
    assert run_training(config, fresh=True).step == 12
    assert file_bytes(Path(f"{config.run}.1")) == before
