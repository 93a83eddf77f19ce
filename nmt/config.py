"""Every setting of a run: its type, default, unit, range and one line of help.

One YAML file, `key=value` from the command line over it, the same checks for both. All faults are reported at
once, each with its file and line. Knows nothing of torch, corpora or models.
"""

import difflib
import re
import reprlib
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args, get_origin

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from nmt.errors import ConfigError

MAX_CONFIG_BYTES = 1_000_000  # a config larger than this is a mistake or an attack
MAX_CONFIG_NODES = 20_000  # keys and values; each takes a kilobyte to parse
MAX_FAULTS, MANY_FAULTS = 20, 1_000  # told at once; worth a look at all
MAX_NAME_BYTES, MAX_PATH = 255, 3_000  # what file systems take, less what we add
LARGEST = 10**9  # of counts that nothing else bounds
# of choices that not every architecture has, those that it has: one that changed nothing would mislead
ALLOWED: dict[str, dict[str, tuple[object, ...]]] = {
    "transformer": {"cell": ("lstm",), "attention": ("scaled_dot", "dot", "additive")},
    "rnn": {"norm": ("pre",), "positions": ("sinusoidal",), "attention_window": (0,), "padding_mask": (True,)},
}


class Section(BaseModel):
    """Base of all sections: frozen, unknown keys refused, defaults checked like any value."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        """pydantic takes true for 1; a misplaced word should not become a number."""
        kind = cls.model_fields[str(info.field_name)].annotation
        if isinstance(value, bool) and {int, float} & {kind, *get_args(kind)}:
            raise PydanticCustomError("number_type", "Input should be a number")
        return value


def _can_be_a_path(text: str) -> str:
    """What no file system takes is told as a wrong setting, not by whoever opens it."""
    if re.search("[\0\ud800-\udfff]", text):
        raise PydanticCustomError("path", "Input should be a path, which has no NUL and no lone surrogate")
    if len(text) > MAX_PATH or any(len(name.encode()) > MAX_NAME_BYTES for name in text.split("/")):
        raise PydanticCustomError("path", "Input should be a path, which is shorter")
    return text


PathText = Annotated[str, AfterValidator(_can_be_a_path)]
Paths = Annotated[
    tuple[PathText, ...],
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
    Field(min_length=1),
]


class Files(Section):
    """The two sides of a corpus, line by line: one file a side or several."""

    source: Paths = Field(description="file or list of files, plain text or .gz, one sentence a line")
    target: Paths = Field(description="the same number of lines: line N translates line N")


class Data(Section):
    """The corpora and which of their pairs to keep."""

    train: Files = Field(description="what the model learns from")
    dev: Files | None = Field(None, description="for model selection; without it 2 % of train, 1,000 at most")
    test: Files | None = Field(None, description="what `nmt eval` scores by default; training never sees it")
    root: PathText = Field("", description="directory that the paths are relative to; else the working directory")
    source_lang: str = Field("", description="language code; else the ending of the file's name")
    target_lang: str = Field("", description="language code, picks BLEU's tokenizer; else the file's ending")
    max_length: int = Field(200, ge=1, le=100_000, description="longest side of a training pair, pieces")
    max_ratio: float = Field(9.0, ge=1, description="greatest ratio of the two sides' lengths in pieces")
    drop_blank: bool = Field(True, description="drop pairs that are blank on a side")
    drop_duplicates: bool = Field(True, description="drop pairs that repeat an earlier pair")
    allow_bad_utf8: bool = Field(
        False, description="train on files with over 1 % of lines that are not UTF-8; bad bytes become U+FFFD"
    )
    nfkc_source: bool = Field(False, description="NFKC-normalise the source side (the target never is)")


class TokenizerSettings(Section):
    """SentencePiece."""

    type: Literal["unigram", "bpe", "char", "word"] = Field("unigram", description="kind of subword model")
    vocab_size: int = Field(8000, ge=8, le=1_000_000, description="pieces, special ones and bytes included [fitted]")
    joint: bool = Field(True, description="one vocabulary for both sides, or one a side")
    byte_fallback: bool = Field(True, description="spell unknown characters in UTF-8 bytes: nothing is unknown")
    character_coverage: float = Field(1.0, gt=0.9, le=1, description="share of characters in the vocabulary, 0-1")
    sampling_alpha: float = Field(
        0.0, ge=0, le=10, description="subword regularisation drawn anew each epoch: smoothing; 0 is off"
    )

    @model_validator(mode="after")
    def sampling_has_segmentations(self) -> Self:
        if self.sampling_alpha and self.type in ("char", "word"):
            raise ValueError(f"sampling_alpha needs type unigram or bpe: {self.type} has one segmentation only")
        return self


class ModelSettings(Section):
    """The model: a Transformer, or the recurrent encoder-decoder that came before it.

    The recurrent model has no heads, feed-forward layers or norms: their sizes mean nothing to it.
    """

    architecture: Literal["transformer", "rnn"] = Field(
        "transformer", description="attention alone, or a recurrent encoder-decoder"
    )
    d_model: int = Field(256, ge=4, le=16_384, description="width [fitted]")
    n_heads: int = Field(4, ge=1, le=256, description="attention heads [fitted]")
    d_ff: int = Field(1024, ge=4, le=65_536, description="width of the feed-forward layers [fitted]")
    n_encoder_layers: int = Field(3, ge=1, le=100, description="encoder layers [fitted]")
    n_decoder_layers: int = Field(3, ge=1, le=100, description="decoder layers [fitted]")
    dropout: float = Field(0.1, ge=0, lt=1, description="on embeddings and every sub-layer's output [fitted]")
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="on attention weights (slow on a CPU)")
    activation_dropout: float = Field(0.0, ge=0, lt=1, description="inside the feed-forward layers")
    activation: Literal["relu", "gelu"] = Field("relu", description="of the feed-forward layers")
    cell: Literal["lstm", "gru"] = Field("lstm", description="of the rnn's layers")
    attention: Literal["scaled_dot", "dot", "general", "additive", "none"] = Field(
        "scaled_dot", description="score of query and key: qk/sqrt(d), qk, qWk, v tanh(q+k); none only for the rnn"
    )
    attention_window: int = Field(
        0, ge=0, le=100_000, description="self-attention sees so many positions to a side; 0 is all"
    )
    padding_mask: bool = Field(True, description="hide the source's padding; false only to see what that is for")
    norm: Literal["pre", "post"] = Field("pre", description="layer norm before each sub-layer, or after")
    positions: Literal["sinusoidal", "learned", "rotary", "none"] = Field("sinusoidal", description="position encoding")
    max_positions: int = Field(1024, ge=8, le=100_000, description="longest sequence the model can hold, pieces")
    tied_embeddings: Literal["all", "decoder", "none"] = Field(
        "all", description="one matrix for source, target and output; for target and output; or none shared"
    )

    @model_validator(mode="after")
    def choices_fit_together(self) -> Self:
        for key, allowed in ALLOWED[self.architecture].items():
            if (value := getattr(self, key)) not in allowed:
                words = " or ".join(_plain(one) for one in allowed)
                raise ValueError(f"architecture {self.architecture} has {key} {words}, not {_plain(value)}")
        if self.architecture == "rnn":
            self._check_rnn()
        else:
            self._check_transformer()
        return self

    def _check_rnn(self) -> None:
        if self.n_encoder_layers != self.n_decoder_layers:
            raise ValueError(
                "architecture rnn needs n_decoder_layers = n_encoder_layers: each layer of the decoder starts "
                f"where the encoder's ended; got {self.n_decoder_layers} and {self.n_encoder_layers}"
            )
        if self.d_model % 2:
            raise ValueError(
                f"architecture rnn needs an even d_model, for its encoder reads both ways, got {self.d_model}"
            )

    def _check_transformer(self) -> None:
        if self.d_model % self.n_heads:
            raise ValueError(f"d_model ({self.d_model}) is not divisible by n_heads ({self.n_heads})")
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"sinusoidal positions need an even d_model, got {self.d_model}")
        if self.positions == "rotary" and (width := self.d_model // self.n_heads) % 2:
            raise ValueError(f"rotary positions need an even d_model / n_heads, got {width}")
        if self.attention_window and self.attention != "scaled_dot":
            raise ValueError(f"attention_window needs attention scaled_dot, not {self.attention}")


class TrainSettings(Section):
    """Optimisation, stopping, and what is kept."""

    batch_tokens: int = Field(
        4096, ge=8, le=LARGEST, description="(longest side + 1) x pairs of a micro-batch, pieces [fitted]"
    )
    accumulate: int = Field(1, ge=1, le=10_000, description="micro-batches an optimiser step [fitted]")
    schedule: Literal["inverse_sqrt", "noam", "constant"] = Field("inverse_sqrt", description="learning rate's course")
    lr: float = Field(1e-3, gt=0, le=100, description="peak learning rate; for noam the factor [fitted]")
    warmup: int = Field(400, ge=1, le=LARGEST, description="steps of linear rise to the peak [fitted]")
    cooldown: float = Field(0.2, ge=0, le=1, description="last share of the budget, falling linearly to 0, 0-1")
    adam_beta1: float = Field(0.9, ge=0, lt=1, description="AdamW's decay of the first moment")
    adam_beta2: float = Field(0.98, ge=0, lt=1, description="AdamW's decay of the second moment")
    weight_decay: float = Field(0.0, ge=0, le=10, description="AdamW's, on matrices only")
    clip_norm: float = Field(1.0, ge=0, description="greatest gradient norm; 0 is off")
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="share of probability spread over the vocabulary, 0-1")
    decoder_input: Literal["teacher_forcing", "scheduled_sampling", "free_running"] = Field(
        "teacher_forcing", description="words that the decoder reads in training: true, some its own, all its own"
    )
    sampling_rate: float = Field(
        0.25, ge=0, le=1, description="share of own words in scheduled sampling: from 0 linearly to this, 0-1"
    )
    r_drop: float = Field(0.0, ge=0, description="weight of R-Drop's divergence of two dropout passes; 0 is off")
    precision: Literal["auto", "fp32", "bf16"] = Field("auto", description="of matrix products; weights stay fp32")
    deterministic: bool = Field(
        False, description="on a GPU: the same weights each time, bit for bit, at some speed; a CPU does so anyway"
    )
    max_steps: int | None = Field(None, ge=1, le=LARGEST, description="end after so many steps in all")
    max_epochs: int | None = Field(
        None, ge=1, le=LARGEST, description="end after so many passes over the corpus [fitted]"
    )
    max_minutes: float | None = Field(None, gt=0, description="end after so many minutes of training in all")
    patience: int | None = Field(
        None, ge=1, le=LARGEST, description="end after so many validations without a better score"
    )
    metric: Literal["bleu", "loss"] = Field("bleu", description="of dev, for patience and for the best model")
    validate_every: int = Field(500, ge=1, le=LARGEST, description="steps between validations, each saves [fitted]")
    keep: int = Field(2, ge=2, le=1000, description="newest checkpoints that are kept; two, for one may be damaged")
    average: Literal["none", "ema", "best", "last"] = Field(
        "ema", description="average of weights: moving, or of the best or last checkpoints at the end"
    )
    ema_decay: float = Field(0.999, gt=0, lt=1, description="of the moving average, a step")
    n_average: int = Field(5, ge=1, le=1000, description="checkpoints averaged by best or last")
    init_from: PathText = Field("", description="run or model file to start from with its weights (fine-tuning)")


class SearchSettings(Section):
    """What a run and a single translation can both set."""

    beam: int = Field(5, ge=1, le=1000, description="hypotheses kept; 1 is greedy")
    length_penalty: Literal["average", "gnmt"] = Field("average", description="S / L^alpha, or S / ((5+L)/6)^alpha")
    alpha: float = Field(1.0, ge=0, le=10, description="the length penalty's strength; 0 is off")
    max_length_a: float = Field(1.5, ge=0, le=100, description="longest output: a x source length + b, pieces")
    max_length_b: int = Field(10, ge=1, le=100_000, description="see max_length_a")
    min_length: int = Field(1, ge=0, le=100_000, description="least number of pieces before the end")


class DecodeSettings(SearchSettings):
    """Search, and what it works on at a time."""

    batch_size: int = Field(64, ge=1, le=100_000, description="sentences decoded together")


class Config(Section):
    """Everything that decides a run."""

    run: PathText = Field(min_length=1, description="directory of the run: checkpoints, figures, the model")
    seed: int = Field(1, ge=0, lt=2**31, description="of every random choice")
    data: Data
    tokenizer: TokenizerSettings = TokenizerSettings()
    model: ModelSettings = ModelSettings()
    train: TrainSettings = TrainSettings()
    decode: DecodeSettings = DecodeSettings()

    @model_validator(mode="after")
    def sections_agree(self) -> Self:
        if self.model.tied_embeddings == "all" and not self.tokenizer.joint:
            raise ValueError("model.tied_embeddings=all needs tokenizer.joint=true; use decoder or none")
        if self.data.max_length >= self.model.max_positions:
            raise ValueError(
                f"data.max_length ({self.data.max_length}) must be less than "
                f"model.max_positions ({self.model.max_positions})"
            )
        if self.data.max_length + 1 > self.train.batch_tokens:
            raise ValueError(
                f"train.batch_tokens ({self.train.batch_tokens}) cannot hold one pair of "
                f"data.max_length ({self.data.max_length}) pieces"
            )
        return self


# --- reading ----------------------------------------------------------------------------------------------


class CoreLoader(yaml.SafeLoader):
    """YAML 1.2's core schema: `3e-4` is a number, `no` a word, and a key may stand once. Short, without merges."""

    n_nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.n_nodes += 1
        if self.n_nodes > MAX_CONFIG_NODES:
            raise yaml.YAMLError(f"over {MAX_CONFIG_NODES:,} keys and values")
        return super().compose_node(parent, index)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """YAML 1.1 merges mappings here: those of mappings of mappings take all memory there is."""


CoreLoader.yaml_implicit_resolvers = {}
for tag, pattern, first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
):
    CoreLoader.add_implicit_resolver(
        f"tag:yaml.org,2002:{tag}",
        re.compile(f"^(?:{pattern})$"),
        first,
    )
CoreLoader.add_constructor("tag:yaml.org,2002:float", lambda _, node: float(node.value))
CoreLoader.add_constructor("tag:yaml.org,2002:int", lambda _, node: int(node.value))
# what PyYAML raises for content that is no YAML; the last two for a tag that its value does not fit (!!bool maybe)
YAML_FAULTS = (yaml.YAMLError, ValueError, RecursionError, KeyError, AttributeError, TypeError)


class CoreDumper(yaml.SafeDumper):
    """Quotes what is no plain word to a reader of YAML 1.1 or to one of 1.2."""


CoreDumper.yaml_implicit_resolvers = {
    first: [*old.get(first, []), *new.get(first, [])]
    for old, new in [(yaml.SafeDumper.yaml_implicit_resolvers, CoreLoader.yaml_implicit_resolvers)]
    for first in {*old, *new}
}
CoreDumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"'
    ),
)

KeyPath = tuple[str, ...]
Origins = dict[KeyPath, str]  # where a key was set: "demo.yaml:12", or "command line"


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read a config file, lay `key=value` overrides on it, and check everything.

    Raises:
        ConfigError: the file cannot be read or parsed, or one or more settings are wrong; the message has a
            line for each.
    """
    tree, origins = read_yaml(path)
    for override in overrides:
        key, separator, value = override.partition("=")
        if not separator or not key:
            raise ConfigError(f"'{override}' is not a setting", hint="write key=value, for example train.lr=3e-4")
        _place(tree, key, _parse_value(override, value))
        origins[tuple(key.split("."))] = "command line"
    return check_config(tree, origins, str(path))


def read_yaml(path: Path) -> tuple[dict[str, Any], Origins]:
    """The mapping in a YAML file, and the place of every key in it.

    Raises:
        ConfigError: no such file, over 1 MB, not YAML, not a mapping, or a key stands twice.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", hint="give the path of a config file") from error
    if len(content) > MAX_CONFIG_BYTES:
        raise ConfigError(
            f"{path} has over {MAX_CONFIG_BYTES:,} bytes, more than any config", hint="is it another file?"
        )
    loader = CoreLoader("")
    try:
        loader = CoreLoader(content.decode("utf-8-sig"))
        node = loader.get_single_node()
        origins: Origins = {}
        for key, line in _keys(node, (), set()):
            if key in origins:
                raise ConfigError(f"{path}:{line}: key '{'.'.join(key)}' stands twice", hint="delete one of them")
            origins[key] = f"{path}:{line}"
        tree = loader.construct_document(node) if node is not None else {}
    except YAML_FAULTS as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise ConfigError(
            f"{place}: not valid YAML: {problem[:200]}", hint="check indentation, colons and quotes"
        ) from error
    finally:
        loader.dispose()
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: a config is a mapping of keys to values", hint="see `nmt config`")
    return tree, origins


def _keys(node: yaml.Node | None, prefix: KeyPath, seen: set[int]) -> Iterator[tuple[KeyPath, int]]:
    """Every key below a YAML node, with its line; what an alias repeats, once: aliases of aliases explode."""
    if isinstance(node, yaml.MappingNode) and id(node) not in seen:
        seen.add(id(node))
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="found unhashable key", problem_mark=key.start_mark)
            here = (*prefix, str(key.value))
            yield here, key.start_mark.line + 1
            yield from _keys(value, here, seen)


def _parse_value(override: str, text: str) -> Any:
    try:
        return yaml.load(text, CoreLoader)  # noqa: S506 - a SafeLoader
    except YAML_FAULTS as error:
        raise ConfigError(f"'{override}': the value is not valid YAML", hint="quote it") from error


def _place(tree: dict[str, Any], dotted: str, value: Any) -> None:
    """Set `a.b.c` in nested mappings, making those that are missing."""
    *parents, last = dotted.split(".")
    for parent in parents:
        below = tree.get(parent)
        if not isinstance(below, dict):
            below = tree[parent] = {}
        tree = below
    tree[last] = value


def check_config(tree: Mapping[str, Any], origins: Origins, name: str) -> Config:
    """Turn a tree of plain values into a `Config`.

    Raises:
        ConfigError: with a line for every fault: where, which key, what is wrong, what is allowed.
    """
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        if error.error_count() > MANY_FAULTS:  # each takes a kilobyte to tell
            raise ConfigError(f"{name}: {error.error_count():,} faults", hint="is it another file?") from None
        found = error.errors()
        faults = [_fault(dict(fault), origins, name) for fault in found[:MAX_FAULTS]]
        if len(found) > MAX_FAULTS:
            faults.append(f"{name}: and {len(found) - MAX_FAULTS:,} more")
        hint = "`nmt config` lists every key with its default and range"
        raise ConfigError("\n".join(dict.fromkeys(faults)), hint=hint) from error


SHORT = reprlib.Repr()  # repr() of aliases of aliases takes all memory there is
SHORT.maxstring = SHORT.maxother = SHORT.maxlong = 200


def _fault(fault: dict[str, Any], origins: Origins, name: str) -> str:
    """One line for one of pydantic's complaints."""
    path = tuple(str(part) for part in fault["loc"])
    known = next((origins[path[:n]] for n in range(len(path), 0, -1) if path[:n] in origins), name)
    key = ".".join(path)[:100]
    if fault["type"] == "extra_forbidden":
        keys = [key for key, *_ in settings()]
        sections = {leaf[:n] for leaf in keys for n, letter in enumerate(leaf) if letter == "."}
        near = difflib.get_close_matches(key, [*keys, *sorted(sections)], n=1, cutoff=0.5)
        by_leaf = [full for full, *_ in settings() if full.rsplit(".", 1)[-1] == path[-1]]
        best = (by_leaf or near)[:1]
        return f"{known}: unknown key '{key}'" + (f" (did you mean '{best[0]}'?)" if best else "")
    if fault["type"] == "missing":
        return f"{known}: '{key}' is missing"
    if fault["type"] == "value_error":
        message = described(fault)
        below = [key for key in origins if key[: len(path)] == path and key[-1] in re.findall(r"\w+", message)]
        known = next((origins[key] for key in below if origins[key] == "command line"), known)
        return f"{known}: {message}"
    return f"{known}: '{key}': {described(fault)}"


def described(fault: Mapping[str, Any]) -> str:
    """What one of pydantic's faults says of a value, and the value: `input should be less than 1, got 2`."""
    message = str(fault["msg"]).removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    return message if fault["type"] == "value_error" else f"{message}, got {SHORT.repr(fault['input']):.80}"


# --- writing and listing ----------------------------------------------------------------------------------


def dump_config(config: Config) -> str:
    """The config as YAML, every key in it, such that reading it again gives the same config."""
    tree = config.model_dump(mode="json")
    return yaml.dump(tree, Dumper=CoreDumper, sort_keys=False, allow_unicode=True)


def settings(section: type[BaseModel] = Config, prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Every setting as (dotted key, what is allowed, default, help), in the order of the sections."""
    for name, field in section.model_fields.items():
        kind = field.annotation
        inner = next((a for a in (kind, *get_args(kind)) if isinstance(a, type) and issubclass(a, BaseModel)), None)
        if inner is not None:
            yield from settings(inner, f"{prefix}{name}.")
            continue
        default = "required" if field.is_required() else _plain(field.default)
        yield f"{prefix}{name}", _allowed(kind, field.metadata), default, field.description or ""


def values(config: Config, *, only_set: bool = False) -> Iterator[tuple[str, str]]:
    """Every setting of a config as (dotted key, value), corpora's paths resolved and separated by spaces.

    Args:
        only_set: leave out those that have their default because nobody has set them.
    """

    def walk(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
        for name, value in tree.items():
            if isinstance(value, Mapping):
                yield from walk(value, f"{prefix}{name}.")
            elif isinstance(value, tuple):
                yield f"{prefix}{name}", " ".join(str(resolve_path(path, config.data.root)) for path in value)
            else:
                yield f"{prefix}{name}", _plain(value)

    yield from walk(config.model_dump(exclude_unset=only_set), "")


def _plain(value: object) -> str:
    if value is None or value == "":
        return "-"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _allowed(kind: Any, bounds: Sequence[Any]) -> str:
    """A type as a reader of the list wants it: `int 1..100`, `pre|post`."""
    if get_origin(kind) is Literal:
        return "|".join(get_args(kind))
    if get_origin(kind) is types.UnionType:
        kind = next(part for part in get_args(kind) if part is not type(None))
    name = "path(s)" if get_origin(kind) is tuple else kind.__name__
    low = next((f"{b.ge}" for b in bounds if getattr(b, "ge", None) is not None), "")
    low = low or next((f">{b.gt}" for b in bounds if getattr(b, "gt", None) is not None), "")
    high = next((f"{b.le}" for b in bounds if getattr(b, "le", None) is not None), "")
    high = high or next((f"<{b.lt}" for b in bounds if getattr(b, "lt", None) is not None), "")
    return f"{name} {low}..{high}" if low or high else name


FITTED = frozenset(key for key, *_, meaning in settings() if meaning.endswith("[fitted]"))
INHERITED = ("model.", "tokenizer.", "data.nfkc_source")  # from a run that goes on, or from train.init_from


def left_to_training(config: Config, keys: Iterable[str]) -> set[str]:
    """Those of some keys whose values a training inherits or fits to the corpus, because they are not set."""
    was_set = dict(values(config, only_set=True))
    return {key for key in keys if key not in was_set and (key in FITTED or key.startswith(INHERITED))}


def resolve_path(path: str, root: str) -> Path:
    """A corpus' path: relative to `data.root` where that is set, else to the working directory."""
    return Path(root, path)


def language(settings_: Data, side: Literal["source", "target"]) -> str:
    """A side's language code: as set, else the ending of its file's name (`train.zh.gz`: zh), else empty."""
    given = settings_.source_lang if side == "source" else settings_.target_lang
    first = Path((settings_.train.source if side == "source" else settings_.train.target)[0])
    return given or language_of(first)


def base_language(code: str) -> str:
    """A language code without region and script: zh of zh-CN, zho of zho_Hans."""
    return re.split("[-_]", code.lower())[0]


def language_of(path: Path) -> str:
    """The language code that a file's name ends in (`test.zh-CN.gz`: zh-CN), else empty."""
    ending = Path(path.name.removesuffix(".gz")).suffix.lstrip(".")
    return ending if re.fullmatch(r"[a-z]{2,3}([-_]\w+)?", ending) and ending != "txt" else ""
