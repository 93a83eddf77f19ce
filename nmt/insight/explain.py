"""The explanation of one translation: tensors inside the model, attention weights, and the search.

This module runs the model and the search of `nmt translate` in torch, and records their data with callbacks and hooks.
The steps before and after the search are left out, such as those for capitals and unknown characters.
"""

import html
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt.config import ModelSettings
from nmt.decode.engines.torch_engine import only_model
from nmt.decode.options import Hypothesis, SearchOptions
from nmt.decode.search import TraceStep, search
from nmt.errors import InputError, ModelError
from nmt.insight import pages
from nmt.insight.search_tree import SearchNode, mark_paths, search_tree
from nmt.insight.stages import Stage, decoder_cache, excerpts, record_stages
from nmt.model.base import AttentionWeights, Seq2Seq
from nmt.model.incremental import incremental_decoder
from nmt.seeds import seed_of
from nmt.text import BOS, EOS, PAD
from nmt.text.lines import one_line
from nmt.translate.loading import load
from nmt.translate.translator import Translator

N_ALTERNATIVES = 5  # number of alternatives listed for each token
MAX_COLUMNS = 64  # maximum number of hidden units (columns) in a stage's heat map on the page

Check = Callable[[], None]  # a function that may raise an exception to stop the explanation


@dataclass(frozen=True)
class Choice:
    """A token that the model could write next."""

    piece: str
    token: int
    log_prob: float  # nats, conditional on the previous tokens


@dataclass(frozen=True)
class Token:
    """A target token of a sentence. Its probabilities are conditional on the tokens before it."""

    piece: str
    token: int
    log_prob: float  # nats
    rank: int  # 1 for the most probable token of the vocabulary, 2 for the second, and so on
    alternatives: list[Choice]  # the most probable tokens at this position, best first


@dataclass(frozen=True)
class Translated:
    """A hypothesis and its detokenized text."""

    text: str
    tokens: list[Token]  # the last token is EOS
    log_prob: float  # sum of the log-probabilities of `tokens`, in nats
    score: float  # log_prob after the length penalty
    is_cut: bool  # whether the length limit ended the translation too early


@dataclass(frozen=True)
class Reference:
    """The reference, scored by teacher forcing: the decoder reads the reference, not its own output."""

    text: str
    tokens: list[Token]  # the last token is EOS
    log_prob: float  # sum of the log-probabilities of `tokens`, in nats
    first_difference: int | None  # index of the first token that differs from greedy search, if any


@dataclass(frozen=True)
class OnePass:
    """The result of a common mistake: one decoder pass over BOS and padding instead of the previous tokens."""

    text: str
    tokens: list[Token]  # the most probable token at each position


@dataclass(frozen=True)
class Explanation:
    """All data on how a model translated one sentence; see `explain`."""

    model: str  # kind and sizes of the model in one line
    settings: ModelSettings
    source: str
    source_pieces: list[str]  # the last piece is EOS
    source_tokens: list[int]  # the last token is EOS
    options: SearchOptions
    hypotheses: list[Translated]  # the best hypothesis is first
    greedy: Translated
    stages: list[Stage]  # recorded while the model scores `translation`
    cache: tuple[list[tuple[int, ...]], Tensor]  # the result of `decoder_cache` for `translation`
    attention: AttentionWeights  # shapes: encoder (L, 1, H, S, S), decoder (L, 1, H, T, T), cross (L, 1, H, T, S)
    tree: list[SearchNode]
    one_pass: OnePass
    reference: Reference | None

    @property
    def translation(self) -> Translated:
        return self.hypotheses[0]

    @property
    def target_pieces(self) -> list[str]:
        """The pieces of the translation. The last piece is EOS."""
        return [token.piece for token in self.translation.tokens]

    def _repr_html_(self) -> str:
        """Return the page of `nmt explain` in a frame, so that its styles and scripts do not affect the notebook."""
        page = html.escape(as_page(self))
        return f'<iframe srcdoc="{page}" sandbox="allow-scripts" width="100%" height="800"></iframe>'


def outline(
    translator: Translator, text: str, *, prefix: str | Sequence[int] = (), check: Check = lambda: None, **options: Any
) -> dict[str, Any]:
    """Return the parts of an explanation that are fast to compute. Arguments and errors are those of `explain`.

    The keys are names of fields of `Explanation`, and "cross". The value of "cross" is the cross-attention (T, S) for
    the best hypothesis, averaged over all heads. It is None if the model has no attention.
    """
    sentence = Sentence(translator, text, options, prefix, check)
    with torch.inference_mode():
        hypotheses, steps = sentence.search(sentence.options)
        best = hypotheses[0].tokens
        tree = search_tree(steps, sentence.options, sentence.tokenizer)
        mark_paths(tree, best, ())
        translations = sentence.translations(hypotheses)
        attention = sentence.model.attention(sentence.src, sentence.tgt_in(best))
        cross = attention.cross  # (L, 1, H, T, S)
        mean = None
        if len(cross):
            mean = cross.mean((0, 2))[0].tolist()  # (T, S)
        return {
            "source_pieces": sentence.source_pieces,
            "hypotheses": translations,
            "cross": mean,
            "tree": tree,
        }


def explain(
    run: Path | str | Translator,
    text: str,
    *,
    reference: str | None = None,
    prefix: str | Sequence[int] = (),
    check: Check = lambda: None,
    **options: Any,
) -> Explanation:
    """Explain the translation of one sentence.

    Args:
        run: a run directory, a model file, or a translator from `load`.
        text: one sentence, not longer than the model's maximum length.
        reference: a correct translation, with which the model's translation is compared.
        prefix: text or target token ids with which each translation must begin.
        check: called at each step; may raise an exception to stop the explanation.
        options: fields of `SearchOptions` except `glossary`, for example `beam=1`.
    Raises:
        InputError: the text is blank or too long, or the model is an ensemble.
        ModelError: the model is missing or damaged, or `run` is the path of an export.
        ConfigError: an option is unknown or out of range, or `run` is the translator of an export.
    """
    translator = run if isinstance(run, Translator) else load(run, engine="torch")
    sentence = Sentence(translator, text, options, prefix, check)
    with torch.inference_mode():
        # 1. Search for the translation with the given options, and by greedy search.
        hypotheses, greedy, tree = sentence.searches()
        translations = sentence.translations(hypotheses)
        best = hypotheses[0].tokens
        tgt_in = sentence.tgt_in(best)

        # 2. Record what the model computes for the best hypothesis.
        stages, attention = record_stages(sentence.model, sentence.src, tgt_in, sentence.tokenizer.pieces)
        cache = decoder_cache(sentence.model, sentence.src, tgt_in)

        # 3. Score the reference, and compare the translation with the reference.
        scored = None if reference is None else sentence.reference(reference, greedy)
        greedy_text = sentence.translated(greedy)
        one_pass = sentence.one_pass(len(best))
        return Explanation(
            model=describe_model(sentence.model),
            settings=sentence.model.settings,
            source=text,
            source_pieces=sentence.source_pieces,
            source_tokens=sentence.source_tokens,
            options=sentence.options,
            hypotheses=translations,
            greedy=greedy_text,
            stages=stages,
            cache=cache,
            attention=attention,
            tree=tree,
            one_pass=one_pass,
            reference=scored,
        )


def describe_model(model: Seq2Seq) -> str:
    """Return a model's kind, sizes and number of parameters in one line."""
    settings = model.settings
    if settings.architecture == "rnn":
        kind = f"{settings.cell.upper()} with attention {settings.attention}"
    else:
        kind = f"Transformer, {settings.n_heads} heads"
    layers = f"{settings.n_encoder_layers} encoder and {settings.n_decoder_layers} decoder layers"
    n_millions = model.n_parameters / 1e6
    return f"{kind}, {layers}, width {settings.d_model}, {n_millions:.2f}M parameters"


def single_model(translator: Translator) -> Seq2Seq:
    """Return the single model of a translator. Raises InputError if the translator has an export or an ensemble."""
    problem = "an ensemble gives no attention weights"
    return only_model(translator.engine, "attention weights", problem=problem, hint="name one run")


class Sentence:
    """One source sentence and a model. The methods search for translations, and score given translations."""

    def __init__(
        self,
        translator: Translator,
        text: str,
        options: dict[str, Any],
        prefix: str | Sequence[int],
        check: Check,
    ) -> None:
        self.translator = translator
        self.model = single_model(translator)
        self.tokenizer = translator.tokenizers.target
        self.options = translator.with_options(**options)
        self.prefix = translator.encode_prefix(prefix)
        self.check = check
        longest = translator.config.data.max_length
        requests = translator.requests_of(text, self.options)
        if not requests:
            raise InputError("the sentence is blank", hint="give one sentence")
        n_sentences = len({request.place[1] for request in requests})
        if n_sentences > 1:
            raise InputError(f"the text has {n_sentences} sentences", hint="give one sentence")
        if len(requests) > 1:
            raise InputError(f"the sentence is too long: the model takes {longest} pieces", hint="give a shorter one")
        (request,) = requests
        self.seed = seed_of(*request.place)
        self.source_tokens = [*request.tokens, EOS]
        self.source_pieces = translator.tokenizers.source.pieces(self.source_tokens)
        self.src = torch.tensor([self.source_tokens], device=self.model.device)  # (1, S)

    def search(self, options: SearchOptions) -> tuple[list[Hypothesis], list[TraceStep]]:
        """Return the n-best hypotheses and the search steps.

        This is the search of `nmt translate` without `torch.jit.trace`.
        """
        steps: list[TraceStep] = []

        def after_step(step: TraceStep) -> None:
            self.check()
            steps.append(step)

        (hypotheses,) = search(
            incremental_decoder(self.model),
            self.src,
            options,
            prefixes=[self.prefix],
            max_length=self.model.max_length,
            sentence_seeds=[self.seed],
            trace=after_step,
        )
        if not hypotheses:
            raise ModelError("the model's output is not a number", hint="check the loss of its training")
        return hypotheses, steps

    def searches(self) -> tuple[list[Hypothesis], Hypothesis, list[SearchNode]]:
        """Return the n-best hypotheses, the greedy hypothesis, and the search tree."""
        hypotheses, steps = self.search(self.options)
        (greedy,), _ = self.search(self.options.changed(beam=1, n_best=1, sample=False))
        tree = search_tree(steps, self.options, self.tokenizer)
        mark_paths(tree, hypotheses[0].tokens, greedy.tokens)
        return hypotheses, greedy, tree

    def tgt_in(self, tokens: Sequence[int]) -> Tensor:
        """Return the decoder's input (1, T): BOS, then all tokens except the final EOS."""
        return torch.tensor([[BOS, *tokens[:-1]]], device=self.src.device)

    def log_probs(self, tgt_in: Tensor) -> Tensor:
        """Return the log-probabilities (T, V) of the next token at each position of `tgt_in` (1, T)."""
        self.check()
        logits: Tensor = self.model(self.src, tgt_in)  # (1, T, V)
        return logits[0].float().log_softmax(-1)

    def tokens_of(self, text: str) -> list[int]:
        """Return the target token ids of a text, then EOS. A text that is too long for the model is truncated."""
        _, (tokens,) = self.translator.encode_pairs([""], [text])
        return [*tokens, EOS]

    def text_of(self, tokens: Sequence[int]) -> str:
        return one_line(self.tokenizer.decode(tokens))

    def tokens(self, tokens: Sequence[int], log_probs: Tensor) -> list[Token]:
        """Return a `Token` for each of T token ids, given the log-probabilities (T, V) at their positions."""
        token_ids = torch.tensor(tokens, device=log_probs.device)[:, None]  # (T, 1)
        token_log_probs = log_probs.gather(1, token_ids)  # (T, 1)
        ranks = (log_probs > token_log_probs).sum(1) + 1  # (T,)
        best = log_probs.topk(min(N_ALTERNATIVES, log_probs.size(1)))  # values and indices (T, N_ALTERNATIVES)
        pieces = self.tokenizer.pieces(tokens)
        described_tokens = []
        for t, token in enumerate(tokens):
            likely = best.indices[t].tolist()
            likely_pieces = self.tokenizer.pieces(likely)
            likely_log_probs = best.values[t].tolist()
            alternatives = list(map(Choice, likely_pieces, likely, likely_log_probs))
            log_prob = token_log_probs[t].item()
            described_tokens.append(Token(pieces[t], token, log_prob, int(ranks[t]), alternatives))
        return described_tokens

    def scored(self, tokens: Sequence[int]) -> list[Token]:
        """Score the tokens of a hypothesis by teacher forcing. The hypothesis must end in EOS."""
        return self.tokens(tokens, self.log_probs(self.tgt_in(tokens)))

    def translated(self, hypothesis: Hypothesis) -> Translated:
        tokens = self.scored(hypothesis.tokens)
        text = self.text_of(hypothesis.tokens)
        return Translated(text, tokens, hypothesis.log_prob, hypothesis.score, hypothesis.is_cut)

    def translations(self, hypotheses: Sequence[Hypothesis]) -> list[Translated]:
        return [self.translated(hypothesis) for hypothesis in hypotheses]

    def one_pass(self, length: int) -> OnePass:
        """Predict the tokens of all `length` positions in one decoder pass over BOS and padding."""
        tgt_in = torch.full((1, length), PAD, device=self.src.device)
        tgt_in[0, 0] = BOS
        log_probs = self.log_probs(tgt_in)
        best = log_probs.argmax(1).tolist()
        return OnePass(self.text_of(best), self.tokens(best, log_probs))

    def reference(self, text: str, greedy: Hypothesis) -> Reference:
        """Score the reference, and compare the greedy hypothesis with it."""
        tokens = self.tokens_of(text)
        scored_tokens = self.scored(tokens)
        log_prob = math.fsum(token.log_prob for token in scored_tokens)
        return Reference(text, scored_tokens, log_prob, first_difference(tokens, greedy.tokens))


def first_difference(tokens: Sequence[int], others: Sequence[int]) -> int | None:
    for i, (token, other) in enumerate(zip(tokens, others, strict=False)):
        if token != other:
            return i
    return None


def as_page(explanation: Explanation) -> str:
    """Return a self-contained HTML page. For each stage, the page has only the first `MAX_COLUMNS` hidden units."""
    stages = []
    for stage in explanation.stages:
        # The columns of these axes are hidden units.
        if stage.axes[-1] in "DdF":
            stage = replace(stage, values=stage.values[:, :MAX_COLUMNS])
        stages.append(stage)
    attention = explanation.attention._asdict()
    data = {**vars(explanation), "stages": stages, "attention": attention, "code": excerpts()}
    title = f"{explanation.source} – nmt explain"
    return pages.page("explain", title, pages.plain(data, pages.packed))


def as_json(explanation: Explanation) -> str:
    """Return a JSON object with all fields of the explanation. Tensors become nested lists."""
    data = {**vars(explanation), "attention": explanation.attention._asdict()}
    return json.dumps(pages.plain(data, Tensor.tolist), ensure_ascii=False)
