"""Random sampling from a model: temperature, top-k (Fan et al. 2018) and top-p (Holtzman et al. 2020)."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.decode.options import SearchOptions
from nmt.seeds import seed_of

GROUP = 64  # number of neighboring tokens in a group, see `Sampler`


class Sampler:
    """A sampler of tokens from softmax(logits), which uses the Gumbel-max trick.

    The trick takes the token with the largest sum of logit and Gumbel noise. To save random numbers, the sampler first
    draws a group of neighboring tokens, and then a token of this group.

    The noise depends only on the sentence's seed, the step, the beam and the token. So the rest of the batch can change
    a sample only by the rounding of logits. In fp32, this changes about one sample in a million.
    """

    def __init__(self, options: SearchOptions, seeds: Sequence[int]) -> None:
        self.options = options
        self.generators = [torch.Generator().manual_seed(seed_of(options.seed, seed)) for seed in seeds]

    def continuations(self, log_probs: Tensor, live: Tensor, sentences: list[int]) -> tuple[Tensor, ...]:
        """Sample one continuation of each beam. The search calls this once per step.

        Args:
            log_probs: (B, K, V), the log-probabilities of the next tokens.
            live: (B, K), the log-probabilities of the live hypotheses.
            sentences: for each batch row, the index of its sentence in the seeds.

        Returns:
            four tensors of shape (B, K): the log-probabilities of the new hypotheses, their parent beams, their new
            tokens, and the log-probabilities of these tokens.
        """
        # 1. Divide the vocabulary into groups. Padding fills the last group.
        logits = self._allowed_logits(log_probs)
        n_padding = -logits.size(-1) % GROUP
        padded = F.pad(logits, (0, n_padding), value=-math.inf)
        groups = padded.view(*logits.shape[:2], -1, GROUP)  # (B, K, G, 64)
        n_groups = groups.size(2)
        noise = self._gumbel(sentences, live.size(1), n_groups + GROUP)  # (B, K, G + 64)
        noise = noise.to(live.device)
        # 2. Sample a group of each beam by the total probability of the group.
        totals = groups.logsumexp(-1)  # (B, K, G)
        group = (totals + noise[..., :n_groups]).argmax(-1, keepdim=True)  # (B, K, 1)
        # 3. Sample a token of this group.
        in_group = groups.take_along_dim(group[..., None], 2).squeeze(2)  # (B, K, 64)
        index = (in_group + noise[..., n_groups:]).argmax(-1, keepdim=True)  # (B, K, 1)
        tokens = group * GROUP + index
        tokens = tokens.clamp(max=log_probs.size(-1) - 1)  # if all logits are NaN, the token may be in the padding
        drawn = log_probs.gather(-1, tokens).squeeze(-1)  # (B, K)
        parent_beams = torch.arange(live.size(1), device=live.device).expand_as(live)
        return live + drawn, parent_beams, tokens.squeeze(-1), drawn

    def _allowed_logits(self, log_probs: Tensor) -> Tensor:
        """Return logits / temperature (B, K, V), with -inf for the tokens that top-k or top-p excludes.

        Tokens that tie with the last included token are included, too.
        """
        logits = log_probs / self.options.temperature  # (B, K, V)
        if 0 < self.options.top_k < logits.size(-1):
            least = logits.topk(self.options.top_k, sorted=False).values.amin(-1, keepdim=True)
            logits.masked_fill_(logits < least, -math.inf)
        if self.options.top_p < 1:
            ordered = logits.sort(dim=-1, descending=True).values
            cumulative = ordered.softmax(-1).cumsum(-1)
            n_below = (cumulative < self.options.top_p).sum(-1, keepdim=True)
            least = ordered.gather(-1, n_below.clamp(max=logits.size(-1) - 1))  # the logit of the last included token
            logits.masked_fill_(logits < least, -math.inf)
        return logits

    def _gumbel(self, sentences: list[int], n_beams: int, n: int) -> Tensor:
        """Return Gumbel noise of shape (B, K, n). CPU generators draw it, so all devices get the same noise."""
        noise = torch.empty(len(sentences), n_beams, n)
        for row, sentence in zip(noise, sentences, strict=True):
            row.uniform_(generator=self.generators[sentence])
        noise.clamp_(min=2**-25)  # `uniform_` may return 0, never 1
        return noise.log_().neg_().log_().neg_()
