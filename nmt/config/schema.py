"""Every setting of a run: type, default, range and one line of help."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, field_serializer
from pydantic.functional_validators import AfterValidator, BeforeValidator, model_validator
from pydantic_core import PydanticCustomError

from nmt.languages import source_and_target, target_of

MAX_NAME_BYTES, MAX_PATH = 255, 3_000  # maximum lengths of a name (bytes) and of a path (characters)
LANGUAGE = re.compile(r"([a-zA-Z]{2,8}|x-[a-zA-Z0-9]{1,8})([-_][a-zA-Z0-9]{1,8})*")
CODE = "[a-zA-Z]{2,8}(_[a-zA-Z0-9]{1,8})*"  # a language code in a direction such as de-en; it has no dash
LARGEST = 10**9  # upper bound of counts that have no other bound
# The values that an architecture implements. Keys that are not listed may have any value.
SUPPORTED: dict[str, dict[str, tuple[object, ...]]] = {
    "transformer": {"cell": ("lstm",), "attention": ("scaled_dot", "dot", "additive")},
    "rnn": {"norm": ("pre",), "padding_mask": (True,), "attention_window": (None,)},
}


class Section(BaseModel):
    """The base class of all sections. Sections are immutable and refuse unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)


def check_path(text: str) -> str:
    """Refuse a path that no file system accepts."""
    # For these characters, Python's file functions raise ValueError.
    if re.search("[\0\ud800-\udfff]", text):
        raise PydanticCustomError("path", "Input should be a path without NUL and lone surrogates")
    longest_name = max(len(name.encode()) for name in text.split("/"))  # file systems count bytes
    if len(text) > MAX_PATH or longest_name > MAX_NAME_BYTES:
        raise PydanticCustomError("path", "Input should be a shorter path")
    return text


def is_language(code: str) -> bool:
    """Return whether a code has the form of a BCP 47 tag, such as zh-CN or zh_CN. An empty code is allowed."""
    return not code or LANGUAGE.fullmatch(code) is not None


def check_language(code: str) -> str:
    if not is_language(code):
        raise PydanticCustomError("language", "Input should be a language code such as de, zh-CN or zho_Hans")
    return code


def check_direction(languages: str) -> str:
    if not re.fullmatch(f"({CODE}-{CODE})?", languages):
        raise PydanticCustomError("direction", "Input should be two language codes such as de-en or eng-zho_Hans")
    return languages


def is_meant(direction: str, languages: str) -> bool:
    """Return whether `languages` means a direction. Both de-en and en mean the direction de-en."""
    return f"-{direction}".endswith(f"-{languages}")


PathText = Annotated[str, AfterValidator(check_path)]
Direction = Annotated[str, AfterValidator(check_direction)]
Language = Annotated[str, AfterValidator(check_language)]
ModelPart = Literal["embeddings", "encoder", "decoder", "output"]
AsTuple = BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)
AnyPaths = Annotated[tuple[PathText, ...], AsTuple]
Paths = Annotated[AnyPaths, Field(min_length=1)]


class Files(Section):
    """A corpus: the files of its two sides."""

    source: Paths = Field(description="file or list of files, plain text or .gz, one sentence per line; or of memories")
    target: AnyPaths = Field((), description="line N translates line N of source; default: source has memories")
    root: PathText = Field("", description="as data.root, for this corpus; default: data.root")
    languages: Direction = Field("", description="in a list of corpora: its source and target, as in de-en")


class MixedFiles(Files):
    """A corpus that is mixed into data.train."""

    weight: float = Field(gt=0, lt=1, description="its share of the pairs of an epoch, 0-1; the rest is data.train")


def as_corpora(value: Any) -> Any:
    """Convert a single corpus to a list, and None to an empty list."""
    if value is None:
        return ()
    return value if isinstance(value, list | tuple) else (value,)


Corpora = Annotated[tuple[Files, ...], BeforeValidator(as_corpora)]
CorpusName = Annotated[str, Field(pattern=r"^[\w-]{1,50}$")]


class Data(Section):
    """The corpora, and how their pairs are filtered and prepared."""

    # Corpora.
    train: Corpora = Field(description="the training corpus, or a list of corpora in several languages")
    mix: dict[CorpusName, MixedFiles] = Field({}, description="corpora that are mixed into data.train, by a name")
    temperature: float = Field(1.0, ge=1, le=1000, description="for a list: above 1, small corpora are read more often")
    dev: Corpora = Field((), description="for model selection; default: 2 % of train, at most 1,000 pairs")
    test: Corpora = Field((), description="what `nmt eval` scores by default; not used in training")
    root: PathText = Field("", description="directory that paths are relative to, or a corpus of `nmt download`")
    # Languages.
    source_lang: Language = Field("", description="language code; default: the suffix of the file name")
    target_lang: Language = Field("", description="language code, selects BLEU's tokenizer; default: the file's suffix")
    # The filters, which drop pairs.
    max_length: int = Field(200, ge=1, le=100_000, description="drop training pairs with a longer side, pieces")
    max_ratio: float = Field(
        9.0,
        ge=1,
        description="drop training pairs whose ratio of lengths differs from the usual one by a greater factor",
    )
    drop_blank: bool = Field(True, description="drop pairs with a blank side")
    drop_duplicates: bool = Field(True, description="drop pairs that repeat an earlier pair")
    allow_bad_utf8: bool = Field(False, description="accept files with over 1 % bad UTF-8 lines; bytes become U+FFFD")
    # The preparation of the remaining pairs.
    nfkc_source: bool = Field(False, description="normalize the source side with NFKC (the target never is)")
    placeholders: bool = Field(False, description="learn to keep numbers, URLs, {name} and the like as they are")
    glossary: bool = Field(False, description="learn to translate terms as nmt translate --glossary says")
    concatenate: float = Field(
        0.0, ge=0, le=1, description="share of the pairs of an epoch that are concatenated, two by two"
    )
    # `Config.direction` sets this value. Users do not set it.
    target_tag: str = Field("", description="the only target language of a model of several: fra for >>fra<<")

    @property
    def longest(self) -> int:
        """The maximum length of each side of a training example in pieces. An example may be two concatenated pairs."""
        return self.max_length * 2 if self.concatenate else self.max_length

    @property
    def directions(self) -> list[str]:
        """The directions of the training corpora, such as de-en. Empty if the corpora name no languages."""
        # With a target tag, the direction is already chosen.
        if self.target_tag:
            return []
        languages = [files.languages for files in self.train if files.languages]
        return list(dict.fromkeys(languages))

    @property
    def targets(self) -> list[str]:
        """The target languages of `directions`, in the same order."""
        targets = [target_of(direction) for direction in self.directions]
        return list(dict.fromkeys(targets))

    @field_serializer("train", "dev", "test", mode="wrap")
    def dump_corpora(self, corpora: tuple[Files, ...], dump: SerializerFunctionWrapHandler) -> Any:
        """Dump an empty list as null, and a single corpus without languages as a mapping."""
        if not corpora:
            return None
        dumped = dump(corpora)
        is_mapping = len(corpora) == 1 and not corpora[0].languages
        return dumped[0] if is_mapping else dumped

    @model_validator(mode="after")
    def check_weights(self) -> Self:
        total = sum(files.weight for files in self.mix.values())
        if total >= 1:
            raise ValueError(f"the weights of mix add up to {total:g}, which leaves nothing of train")
        return self

    @model_validator(mode="after")
    def check_lists(self) -> Self:
        """Check that train, dev and test are all lists of corpora, or all single corpora."""
        is_list = len(self.train) != 1 or bool(self.directions)
        if is_list and (self.mix or self.target_tag):
            raise ValueError("mix and target_tag do not go with a list of corpora in train")
        if self.concatenate and (is_list or self.target_tag):
            raise ValueError("concatenate needs a corpus of one direction in train")
        if not is_list and self.temperature != 1:
            raise ValueError("temperature needs a list of corpora in train")
        for name in ("train", "dev", "test"):
            corpora: tuple[Files, ...] = getattr(self, name)
            directions = [files.languages for files in corpora]
            if is_list:
                self._check_directions(name, directions)
            # With a target tag, a single corpus may have languages.
            elif len(corpora) > 1 or (any(directions) and not self.target_tag):
                raise ValueError(f"{name} must be a corpus, as train is")
        return self

    def _check_directions(self, name: str, directions: list[str]) -> None:
        """Check the directions of a list of corpora. Training must have a corpus into each target language."""
        # A list of corpora needs a dev set, because none is held out. A test set is optional.
        if "" in directions or not (directions or name == "test"):
            raise ValueError(f"{name} needs corpora that have languages, such as de-en")
        for direction in directions:
            if target_of(direction) not in self.targets:
                raise ValueError(f"{name} has {direction}, but train has no corpus into that language")
        if name != "train" and len(set(directions)) < len(directions):
            raise ValueError(f"{name} has a direction twice: list all of its files in one corpus")


class TokenizerSettings(Section):
    type: Literal["unigram", "bpe", "char", "word"] = Field("unigram", description="kind of subword model")
    vocab_size: int = Field(8000, ge=8, le=1_000_000, description="pieces, including special and byte ones [fitted]")
    joint: bool = Field(True, description="one vocabulary for both sides, or one per side")
    byte_fallback: bool = Field(True, description="spell unknown characters in UTF-8 bytes: nothing is unknown")
    character_coverage: float = Field(1.0, ge=0.98, le=1, description="fraction of characters in the vocabulary")
    symbols: str = Field("", pattern=r"^[^\x00]*$", description="tags, each always one piece: <BT> <NEWS>")


class ModelSettings(Section):
    """The model. A recurrent model ignores the settings of heads, feed-forward layers, norms and positions."""

    # Sizes.
    architecture: Literal["transformer", "rnn"] = Field("transformer", description="rnn: recurrent encoder-decoder")
    d_model: int = Field(256, ge=4, le=16_384, description="width [fitted]")
    n_heads: int = Field(4, ge=1, le=256, description="attention heads [fitted]")
    d_ff: int = Field(1024, ge=4, le=65_536, description="width of the feed-forward layers [fitted]")
    n_encoder_layers: int = Field(3, ge=1, le=100, description="encoder layers [fitted]")
    n_decoder_layers: int = Field(3, ge=1, le=100, description="decoder layers [fitted]")
    # The dropout rates at different places.
    dropout: float = Field(0.1, ge=0, lt=1, description="on embeddings and the output of every sub-layer [fitted]")
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="on attention weights (slow on a CPU)")
    activation_dropout: float = Field(0.0, ge=0, lt=1, description="inside the feed-forward layers")
    # The parts of a layer.
    activation: Literal["relu", "gelu", "silu"] = Field("relu", description="of the feed-forward layers")
    cell: Literal["lstm", "gru"] = Field("lstm", description="of the rnn's layers")
    attention: Literal["scaled_dot", "dot", "general", "additive", "none"] = Field(
        "scaled_dot", description="score of query and key: qk/sqrt(d), qk, qWk, v tanh(q+k); none only for the rnn"
    )
    attention_window: int | None = Field(
        None, ge=1, le=100_000, description="self-attention reaches so many positions to each side; default: all"
    )
    padding_mask: bool = Field(True, description="mask source padding; false only to see its effect")
    norm: Literal["pre", "post"] = Field("pre", description="layer norm before each sub-layer, or after")
    norm_epsilon: float = Field(1e-5, gt=0, le=1, description="added to the variance in layer norms; Marian: 1e-6")
    # Positions, embeddings and the projection to logits.
    positions: Literal["sinusoidal", "marian", "learned", "rotary", "none"] = Field(
        "sinusoidal", description="position encoding; marian: sinusoids of other wavelengths"
    )
    start: Literal["bos", "zero"] = Field("bos", description="first input of the decoder: BOS, or zeros as in Marian")
    projection_bias: bool = Field(False, description="a bias on the logits, as imported models have it")
    max_positions: int = Field(1024, ge=8, le=100_000, description="longest sequence that the model accepts, pieces")
    tied_embeddings: Literal["all", "decoder", "none"] = Field(
        "all", description="one matrix for source, target and output; for target and output; or none shared"
    )

    @model_validator(mode="after")
    def check_architecture(self) -> Self:
        # 1. The architecture must support the values of all settings.
        for key, supported in SUPPORTED[self.architecture].items():
            value = getattr(self, key)
            if value not in supported:
                values = " or ".join("null" if choice is None else plain(choice) for choice in supported)
                raise ValueError(f"architecture {self.architecture} supports {key} {values}, not {plain(value)}")

        # 2. In an rnn, the final state of an encoder layer initializes the decoder layer with the same number.
        if self.architecture == "rnn" and self.n_encoder_layers != self.n_decoder_layers:
            got = f"{self.n_decoder_layers} and {self.n_encoder_layers}"
            raise ValueError(f"architecture rnn needs n_decoder_layers = n_encoder_layers, got {got}")

        # 3. All heads must have the same width.
        if self.architecture == "transformer" and self.d_model % self.n_heads:
            raise ValueError(f"d_model ({self.d_model}) is not divisible by n_heads ({self.n_heads})")

        # 4. Position encodings are pairs of numbers. An rnn has none, and halves its width for two directions.
        needs_pairs = self.architecture == "rnn" or self.positions in ("sinusoidal", "marian")
        if needs_pairs and self.d_model % 2:
            raise ValueError(f"architecture rnn and sinusoids need an even d_model, got {self.d_model}")
        width = self.d_model // self.n_heads
        if self.architecture == "transformer" and self.positions == "rotary" and width % 2:
            raise ValueError(f"rotary positions need an even d_model / n_heads, got {width}")
        return self


class TrainSettings(Section):
    """Batches, the optimizer and its schedule, validation, and the limits of training."""

    # Batches. With `accumulate`, the gradients of several batches are added up.
    batch_tokens: int = Field(4096, ge=8, le=LARGEST, description="(longest side + 1) x pairs per micro-batch [fitted]")
    accumulate: int = Field(1, ge=1, le=10_000, description="micro-batches per optimizer step")
    # The learning rate.
    schedule: Literal["inverse_sqrt", "noam", "constant"] = Field("inverse_sqrt", description="learning rate schedule")
    lr: float = Field(1e-3, gt=0, le=100, description="peak learning rate; for noam the factor [fitted]")
    warmup: int = Field(400, ge=1, le=LARGEST, description="steps of linear increase to the peak [fitted]")
    cooldown: float = Field(0.2, ge=0, le=1, description="last fraction of the budget, with linear decay to 0")
    # The update.
    optimizer: Literal["muon", "adamw"] = Field("muon", description="muon: of linear layers, with adamw for the rest")
    adam_beta1: float = Field(0.9, ge=0, lt=1, description="AdamW's decay of the first moment")
    adam_beta2: float = Field(0.98, ge=0, lt=1, description="AdamW's decay of the second moment")
    weight_decay: float = Field(0.0, ge=0, le=10, description="decoupled, on matrices only")
    clip_norm: float = Field(1.0, ge=0, description="maximum gradient norm; 0 is off")
    softmax_share: float = Field(
        1.0, gt=0, le=1, description="share of the vocabulary in the sampled softmax of training; 1 is off"
    )
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="probability mass spread over the vocabulary, 0-1")
    precision: Literal["auto", "fp32", "bf16"] = Field("auto", description="of matmuls; weights stay fp32")
    deterministic: bool = Field(False, description="bit-identical weights on a GPU too, slower; CPUs always give them")
    # The limits of training. Training ends when it reaches one of these limits.
    max_steps: int | None = Field(None, ge=1, le=LARGEST, description="stop after so many steps in total")
    max_epochs: int | None = Field(None, ge=1, le=LARGEST, description="stop after so many epochs in total [fitted]")
    max_minutes: float | None = Field(None, gt=0, description="stop after so many minutes of training in total")
    patience: int | None = Field(None, ge=1, le=LARGEST, description="stop after so many validations without a gain")
    # Validation, and the files that it writes.
    metric: Literal["bleu", "loss"] = Field("bleu", description="on dev, for patience and for the best model")
    validate_every: int = Field(500, ge=1, le=LARGEST, description="steps between validations; each saves [fitted]")
    report: bool = Field(True, description="write report.html into the run after every validation")
    keep: int = Field(2, ge=2, le=1000, description="newest checkpoints to keep; two, because one may be damaged")
    # The weights that training keeps, and the weights that it starts from.
    average: Literal["none", "ema"] = Field("ema", description="of weights: ema is a moving one, used by validations")
    ema_decay: float = Field(0.999, gt=0, lt=1, description="decay of the moving average per step")
    init_from: PathText = Field(
        "", description="start from the weights of this run or model file; a shallower model takes the first layers"
    )
    freeze: Annotated[tuple[ModelPart, ...], AsTuple] = Field(
        (), description="parts of the model that stay as they are"
    )


class SearchSettings(Section):
    """Settings of the search, in a config or for a single translation."""

    beam: int = Field(5, ge=1, le=1000, description="beam size; 1 is greedy search")
    alpha: float = Field(1.0, ge=0, le=10, description="length penalty: log-probability / length^alpha; 0 is off")
    max_length_a: float = Field(
        1.5, ge=0, le=100, description="maximum output length: a x source length + b, pieces [fitted]"
    )
    max_length_b: int = Field(10, ge=1, le=100_000, description="see max_length_a [fitted]")
    min_length: int = Field(1, ge=0, le=100_000, description="minimum number of pieces before EOS")


class DecodeSettings(SearchSettings):
    """Settings of the search and of the engine that runs it."""

    engine: Literal["auto", "torch", "ctranslate2"] = Field(
        "auto", description="auto is ctranslate2 on a CPU if it can hold the model, else torch"
    )
    batch_size: int = Field(64, ge=1, le=100_000, description="sentences decoded together")
    whole_lines: bool = Field(False, description="translate a line as a whole, not sentence by sentence [fitted]")
    abbreviations: list[str] = Field([], description="words that have a full stop within sentences [fitted]")


class Config(Section):
    """All settings of a run."""

    run: PathText = Field(min_length=1, description="directory of the run: checkpoints, metrics, the model")
    seed: int = Field(1, ge=0, lt=2**31, description="of all random choices")
    data: Data
    tokenizer: TokenizerSettings = TokenizerSettings()
    model: ModelSettings = ModelSettings()
    train: TrainSettings = TrainSettings()
    decode: DecodeSettings = DecodeSettings()

    def direction(self, languages: str) -> Self:
        """Return the config for one direction, such as de-en, or for one target language, such as en.

        It has only the corpora of this direction. If no training corpus fits, the first one is kept.
        """
        source, target = source_and_target(languages)
        changes: dict[str, Any] = {"source_lang": source, "target_lang": target, "target_tag": target}
        changes["temperature"] = 1.0  # there is only one training corpus
        # A config must have a training corpus.
        without_languages = self.data.train[0].model_copy(update={"languages": ""})
        changes["train"] = only_corpus(self.data.train, languages) or (without_languages,)
        changes["dev"] = only_corpus(self.data.dev, languages)
        changes["test"] = only_corpus(self.data.test, languages)
        return self.model_copy(update={"data": self.data.model_copy(update=changes)})

    @model_validator(mode="after")
    def check_sections_agree(self) -> Self:
        # 1. An embedding matrix for both sides needs one vocabulary for both sides.
        if self.model.tied_embeddings == "all" and not self.tokenizer.joint:
            raise ValueError("model.tied_embeddings=all needs tokenizer.joint=true; use decoder or none")
        # 2. The longest pair must fit into the model and into a batch.
        longest, cause = self.data.longest, "data.max_length, or twice it"
        positions = self.model.max_positions
        if longest >= positions:  # EOS also needs a position
            raise ValueError(
                f"model.max_positions ({positions}) must be more than {longest}, the longest pair ({cause})"
            )
        tokens = self.train.batch_tokens
        if longest + 1 > tokens:
            raise ValueError(f"train.batch_tokens ({tokens}) cannot hold {longest}, the longest pair ({cause})")
        return self


def only_corpus(corpora: tuple[Files, ...], languages: str) -> tuple[Files, ...]:
    """Return a tuple with the first corpus that `languages` means.

    The tuple is empty if `languages` means no direction, or several.
    """
    meant = [files for files in corpora if is_meant(files.languages, languages)]
    directions = {files.languages for files in meant}
    return tuple(meant[:1]) if len(directions) == 1 else ()


def plain(value: object) -> str:
    """Return a value as YAML spells it. Return `-` for None, an empty string and an empty list."""
    if value is None or value in ("", (), []):
        return "-"
    return str(value).lower() if isinstance(value, bool) else str(value)
