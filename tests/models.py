"""Small models of every architecture with all its settings, batches for them, and small translators."""

import functools
import json
import random
import string
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from conftest import SOURCE, TARGET, model_of, rows_of
from torch import Tensor, nn

from nmt.config import Config, ModelSettings, TokenizerSettings, TrainSettings
from nmt.decode.engines.torch_engine import TorchEngine
from nmt.decode.options import Hypothesis, SearchOptions
from nmt.decode.search import search
from nmt.model.base import Seq2Seq
from nmt.model.incremental import incremental_decoder
from nmt.model.recurrent import RecurrentModel
from nmt.model.transformer import Transformer
from nmt.run import checkpoint as checkpoints
from nmt.run.checkpoint import Checkpoint, new_model, save_checkpoint, weights_of
from nmt.run.directory import RunDirectory
from nmt.run.header import hash_of
from nmt.text import BOS, EOS, PAD, UNK
from nmt.text.batches import Batch, collate, pad_source
from nmt.text.tokenizer import Tokenizer, Tokenizers
from nmt.text.tokenizer_training import train_tokenizer
from nmt.train.optimizer import make_optimizers
from nmt.train.replicas import Replicas
from nmt.train.step import StepOptions, train_step
from nmt.translate.translator import Translator

V = 23
SIZES = {"d_model": 16, "d_ff": 24, "n_heads": 4, "n_encoder_layers": 2, "n_decoder_layers": 2, "max_positions": 32}

Choices = dict[str, Any]  # of settings of the model
# What Marian's Transformer has, and what it does not have.
MARIAN: Choices = {"norm": "post", "positions": "marian", "start": "zero", "norm_epsilon": 1e-6}
NOT_MARIAN: Choices = {"norm": "pre", "positions": "sinusoidal", "start": "bos", "norm_epsilon": 1e-5}


def choices_of(table: str, **common: str) -> list[Choices]:
    """The settings of each row of a table, whose first row has their names."""
    names, *rows = [row.split() for row in rows_of(table)]
    return [{**common, **dict(zip(names, row, strict=True))} for row in rows]


# Every two values of different settings occur together.
TRANSFORMERS = choices_of("""
norm activation positions  tied_embeddings
pre  relu       sinusoidal all
post gelu       sinusoidal decoder
pre  gelu       sinusoidal none
post gelu       learned    all
pre  relu       learned    decoder
post relu       learned    none
""")
RNN_TABLE = """
cell attention  tied_embeddings
lstm none       all
gru  none       decoder
gru  dot        all
lstm additive   none
lstm general    all
gru  additive   decoder
gru  scaled_dot all
"""
RNNS = choices_of(RNN_TABLE, architecture="rnn")
RUNGS: list[Choices] = [
    {"attention": "additive"},
    {"attention": "dot"},
    {"positions": "rotary"},
    {"positions": "none"},
    {"attention_window": 2},
    {"attention_window": 1, "positions": "rotary", "norm": "post"},
    {"positions": "learned", "norm": "post"},
    {"positions": "marian", "norm": "post", "start": "zero"},
]
FAMILY = [TRANSFORMERS[0], TRANSFORMERS[-1], *RUNGS, *RNNS]


def name(choices: Choices) -> str:
    """Return the id of a parametrized test."""
    return " ".join(map(str, choices.values()))


def make(seed: int = 1, n_target_vocab: int = V, n_source_vocab: int = V, scale: float = 1, **choices: Any) -> Seq2Seq:
    """A small model in float64 with random weights, biases and norms; a larger `scale` makes outputs differ more."""
    torch.manual_seed(seed)
    model = fresh(n_target_vocab, n_source_vocab, **choices).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
            parameter.mul_(scale)
    return model


def fresh(n_target_vocab: int = V, n_source_vocab: int = V, **choices: Any) -> Seq2Seq:
    """A small model with its initial weights, in eval mode."""
    settings = ModelSettings(**SIZES | {"dropout": 0.0} | choices)
    model_class = RecurrentModel if settings.architecture == "rnn" else Transformer
    return model_class(settings, n_source_vocab, n_target_vocab).eval()


def batch(*lengths: tuple[int, int], seed: int = 2) -> tuple[Tensor, Tensor]:
    """Random source and target ids of the given lengths, padded."""
    generator = torch.Generator().manual_seed(seed)
    source_lengths, target_lengths = zip(*lengths, strict=True)
    src = torch.full((len(lengths), max(source_lengths)), PAD)
    tgt = torch.full((len(lengths), max(target_lengths)), PAD)
    for row, (s, t) in enumerate(lengths):
        src[row, :s] = torch.randint(4, V, (s,), generator=generator)
        src[row, s - 1] = EOS
        tgt[row, :t] = torch.randint(4, V, (t,), generator=generator)
        tgt[row, 0] = BOS
    return src, tgt


Tokens = tuple[int, ...]
Table = Callable[[Tokens, Tokens], Sequence[float]]  # (source, prefix) to V probabilities


class Rows(NamedTuple):
    """The state of a `TableModel`: the sources, and the tokens that each beam has read so far."""

    sources: list[Tokens]  # B
    prefixes: list[Tokens]  # B*K, BOS first


class TableModel:
    """A decoder whose next-token distribution is a function of the whole source and the whole prefix."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def start(self, src: Tensor) -> Rows:
        sources = []
        for row in src:
            without_padding = row[row != PAD]
            sources.append(tuple(without_padding.tolist()))
        return Rows(sources, [()] * len(sources))

    def step(self, ids: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        prefixes, probabilities = [], []
        for beam, token in enumerate(ids.flatten().tolist()):
            source = state.sources[beam // ids.size(1)]
            bos, *prefix = *state.prefixes[beam], token
            assert bos == BOS
            probabilities.append(self.table(source, tuple(prefix)))
            prefixes.append((bos, *prefix))
        logits = torch.tensor(probabilities, dtype=torch.float64).log() + 3.0  # logits need not be normalized
        return logits.view(*ids.shape, -1), Rows(state.sources, prefixes)

    def select(self, state: Rows, beam_indices: Tensor) -> Rows:
        n_beams = len(state.prefixes) // len(state.sources)
        sentences = beam_indices // n_beams  # (B', K')
        assert (sentences == sentences[:, :1]).all(), "a row's beams come from one sentence"
        sources = [state.sources[i] for i in sentences[:, 0]]
        prefixes = [state.prefixes[i] for i in beam_indices.flatten()]
        return Rows(sources, prefixes)


# --- training steps --------------------------------------------------------------------------------------

SOURCES = [[5, 6, 7], [10], [5, 9, 5, 9, 5], []]
TARGETS = [[8, 9, 10], [11, 12, 13, 14, 15], [6], [7, 7, 7, 7]]


def batch_of(*numbers: int) -> Batch:
    """A batch of some pairs of `SOURCES` and `TARGETS`."""
    sources = [SOURCES[i] for i in numbers]
    targets = [TARGETS[i] for i in numbers]
    return collate(sources, targets, list(numbers))


def random_batch(n_pairs: int, first: int = 0, seed: int = 1) -> Batch:
    """A batch of random pairs, which are numbered from `first` on."""
    draw = torch.Generator().manual_seed(seed)
    sides = []
    for length in torch.randint(1, 9, (2 * n_pairs,), generator=draw):
        token_ids = torch.randint(4, V, (int(length),), generator=draw)
        sides.append(token_ids.tolist())
    lines = range(first, first + n_pairs)
    return collate(sides[:n_pairs], sides[n_pairs:], lines)


def gradient(
    model: Seq2Seq, batches: Sequence[Batch], settings: TrainSettings, *, n: int = 1, **options: Any
) -> dict[str, Tensor]:
    """The gradient of a step with learning rate 0, shared by n replicas, by parameter name."""
    replicas = Replicas(model.train(), n)
    optimizers = make_optimizers(model, settings)
    train_step(replicas, optimizers, batches, StepOptions(settings, lr=0.0, seed=1, **options))
    replicas.close()
    gradients = {}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            gradients[name] = parameter.grad.clone()
    return gradients


# --- translators ------------------------------------------------------------------------------------------

LINES = ["the red dog runs.", "a cat sleeps here!", "where is the small house?", "dogs and cats play, or sleep."]


def sources(*rows: Sequence[int]) -> Tensor:
    """Source ids as a model reads them: (B, S)."""
    return pad_source([list(row) for row in rows])


@functools.cache
def of_five(lines: tuple[str, ...], vocab_size: int) -> bytes:
    """A serialized tokenizer that is trained on some lines of the five pairs."""
    return train_tokenizer(lines, TokenizerSettings(type="bpe", vocab_size=vocab_size))


def random_translator(joint: bool = True, decode: dict[str, Any] | None = None, **choices: Any) -> Translator:
    """A translator with random weights, biases and norms; some of its hypotheses end before the length limit."""
    translator = fresh_translator(joint, decode, **choices)
    model = model_of(translator)
    assert isinstance(model, Transformer)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
        # Make EOS the likeliest piece at a tenth of the positions, by the bias of the last norm.
        n_tokens = len(translator.tokenizers.source)
        text = torch.randint(EOS + 1, n_tokens, (20, 6))
        logits = model(text, text)
        differences = logits.amax(-1) - logits[..., EOS]
        direction = model.projection.weight[EOS]
        scale = differences.quantile(0.9) / direction.square().sum()
        last_norm(model).bias.add_(scale * direction)
    return translator


def last_norm(model: Transformer) -> nn.LayerNorm:
    """Return the norm before the projection, which belongs to the last layer if norms come after sub-layers."""
    norm = model.decoder_norm
    if model.settings.norm == "post":
        *_, last_layer = model.decoder
        norm = last_layer.feed_forward_residual.norm
    assert isinstance(norm, nn.LayerNorm)
    return norm


def fresh_translator(joint: bool = True, decode: dict[str, Any] | None = None, **choices: Any) -> Translator:
    """A translator with initial weights."""
    sizes = {"d_model": 32, "d_ff": 48, "n_encoder_layers": 2, "n_decoder_layers": 2, "max_positions": 64}
    tree: dict[str, Any] = {"run": "runs/x", "tokenizer": {"joint": joint}}
    tree["model"] = {**sizes, **choices}
    tree["data"] = {"train": {"source": "a.zh", "target": "a.en"}, "max_length": 7}
    tree["decode"] = {"max_length_b": 5, **(decode or {})}
    config = Config.model_validate(tree)
    shared = of_five((*SOURCE, *TARGET), 400)
    source_model = shared if joint else of_five(tuple(SOURCE), 300)
    tokenizers = Tokenizers.from_models(source_model, shared, nfkc_source=False)
    torch.manual_seed(1)
    model = new_model(config, tokenizers).eval()
    return Translator(TorchEngine(model), tokenizers, config)


class Banned:
    """A decoder that bans special pieces before the softmax, as the export does, so that scores are comparable."""

    def __init__(self, model: Seq2Seq) -> None:
        self.decoder = incremental_decoder(model)
        self.start, self.select = self.decoder.start, self.decoder.select

    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        logits, state = self.decoder.step(ids, state)
        logits[..., [PAD, UNK, BOS]] = -1e4
        return logits, state


def search_with_bans(translator: Translator, sources: Sequence[list[int]], options: SearchOptions) -> list[Hypothesis]:
    """The best hypothesis for each source, given as token ids, by a search over a `Banned` decoder."""
    model = model_of(translator)
    src = pad_source(list(sources))
    with torch.inference_mode():
        n_best_lists = search(Banned(model), src, options, max_length=model.max_length)
    return [n_best[0] for n_best in n_best_lists]


def tokenizers_of(settings: TokenizerSettings) -> Tokenizers:
    """The tokenizers of both sides, trained on `LINES`."""
    model = train_tokenizer(LINES, settings)
    return Tokenizers.from_models(model, model, nfkc_source=False)


def small_translator(**data: object) -> Translator:
    """A translator for `LINES` in float64, with random weights whose predictions are far from uniform."""
    tree: dict[str, Any] = {"run": "runs/x", "tokenizer": {"vocab_size": 300}}
    tree["data"] = {"train": {"source": "a.de", "target": "a.en"}, "max_length": 12, **data}
    tree["model"] = {"d_model": 16, "d_ff": 24, "n_encoder_layers": 1, "n_decoder_layers": 2, "dropout": 0.0}
    tree["decode"] = {"max_length_a": 0.5, "max_length_b": 4, "batch_size": 3}
    config = Config.model_validate(tree)
    tokenizers = tokenizers_of(config.tokenizer)
    torch.manual_seed(1)
    model = new_model(config, tokenizers)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    engine = TorchEngine(model.double().eval())
    return Translator(engine, tokenizers, config)


def translator_without_bytes(**choices: Any) -> Translator:
    """A translator for `LINES` with a random model in float64; without byte pieces, so characters can be unknown."""
    tokenizers = tokenizers_of(TokenizerSettings(vocab_size=60, byte_fallback=False))
    n = len(tokenizers.source)
    engine = TorchEngine(make(3, n, n, scale=1.5, **choices))
    return Translator(engine, tokenizers, small_translator().config)


def write_run(translator: Translator, path: Path) -> RunDirectory:
    """A run directory with the translator's model and tokenizer."""
    weights = weights_of(model_of(translator))
    tensors = {f"model.{name}": x.float() for name, x in weights.items()}
    run = RunDirectory(path)
    run.create()
    checkpoint = Checkpoint(translator.config, tensors, translator.tokenizers)
    save_checkpoint(run.model_file, checkpoint)
    run.write_tokenizers(translator.tokenizers, joint=True)
    return run


class Parts(NamedTuple):
    """The parts of a model file, from which anybody can write a changed file with valid hashes."""

    tensors: dict[str, Tensor]
    header: dict[str, Any]

    @classmethod
    def of(cls, path: Path) -> "Parts":
        with safetensors.safe_open(path, framework="pt") as file:
            header = json.loads(file.metadata()["nmt"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no dict
        return cls(tensors, header)

    def joined(self) -> bytes:
        header = {**self.header, "header_sha256": hash_of(self.header)}
        header["tensors_sha256"] = checkpoints._hash_parts(self.tensors)
        return safetensors.torch.save(self.tensors, {"nmt": json.dumps(header)})


# --- text -------------------------------------------------------------------------------------------------


def n_bytes(tokenizer: Tokenizer, text: str) -> int:
    """The number of byte pieces of a text."""
    pieces = tokenizer.pieces(tokenizer.encode(text))
    return sum(piece.startswith("<0x") for piece in pieces)


CONTROLS = "".join(map(chr, range(0x20)))
INVISIBLE = "\x7f\x85\xa0\u2028\u200b\u200d\ufeff\u202e"
# Characters and words that hostile lines are made of, by kind.
HOSTILE_PARTS: list[Sequence[str]] = [
    string.ascii_letters + string.digits + string.punctuation,
    CONTROLS + INVISIBLE,
    " \u2581\u3000\t",
    ["<s>", "</s>", "<pad>", "<unk>", "<0x41>", "<0xE2>", ">>", "<<", ">>de<<", "<mask>", "<eop>", "▁the"],
    "我昨天买了一本书。学校",
    "اشتريت كتابا",
    "Ünïcödé ﬁ ① Å",
    ["👩\u200d👩\u200d👧", "🇩🇪", "é", "가", "\U0010fffd", "\ud7ff", "\ue000", "\ufffe", "\U000e0001"],
    ["the ", "a book ", "school ", "I ", "tea "],
]
HOSTILE_LINES = ["", " ", "\u2581", "  two  spaces ", "\0", "</s>", "a </s> b"]
HOSTILE_LINES += ["x" * 20_000, "我" * 3_000, "\u0301" * 500]


def hostile_lines(n: int) -> list[str]:
    """Lines of random characters of all kinds, some very long."""
    rng = random.Random(5)
    lines = [*HOSTILE_LINES]
    while len(lines) < n:
        n_kinds = rng.randint(1, len(HOSTILE_PARTS))
        kinds = rng.sample(HOSTILE_PARTS, n_kinds)
        n_parts = rng.choice([1, 3, 10, 40, 200])
        line = ""
        for kind in rng.choices(kinds, k=n_parts):
            line += rng.choice(kind)
        lines.append(line)
    return lines
