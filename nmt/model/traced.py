"""Running a model's method without Python between its operations."""

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

OFTEN = 64  # calls after which many more are to be expected: recording takes what some 200 save
Kind = tuple[tuple[str, torch.dtype], ...]  # of a call


class Traced:
    """A method whose operations are recorded once and then run one after the other by torch alone.

    To call a short operation takes Python longer than the operation takes: of a step of search for one sentence it
    was more than half. Sizes may change from call to call, branches may not: but for those that depend on which
    arguments are given, and in which precision, for each of these kinds of calls is recorded by itself.

    Args:
        method: of tensors and sequences of them, given by name.
        layers: all that it uses beside its arguments; no two of them share weights.
    """

    def __init__(self, method: Callable[..., Tensor], layers: Iterable[nn.Module]) -> None:
        self.method = method
        self.layers = layers
        self.n_calls: Counter[Kind] = Counter()
        self.recorded: dict[Kind, Callable[..., Tensor] | None] = {}  # None: this torch cannot

    def __call__(self, **arguments: Any) -> Tensor:
        """The method's result; an argument that is None is as if it were not given."""
        given = {name: value for name, value in arguments.items() if value is not None}
        values = tuple(given.values())
        kind = tuple((name, dtype_of(value)) for name, value in given.items())
        self.n_calls[kind] += 1
        if self.n_calls[kind] > OFTEN and kind not in self.recorded:
            self.recorded[kind] = recording(_Method(self.method, self.layers, tuple(given)), values)
        run = self.recorded.get(kind)
        return run(*values) if run else self.method(**given)


def dtype_of(value: Any) -> torch.dtype:
    """Of a tensor, or of all that are in sequences of sequences."""
    while not isinstance(value, Tensor):
        value = value[0]
    return value.dtype


class _Method(nn.Module):
    """The method as a module, for that is what can be recorded together with weights of any kind."""

    def __init__(self, method: Callable[..., Tensor], layers: Iterable[nn.Module], names: Sequence[str]) -> None:
        super().__init__()
        self.method = method
        self.layers = nn.ModuleList(layers)
        self.names = names

    def forward(self, *values: Any) -> Tensor:
        return self.method(**dict(zip(self.names, values, strict=True)))


def recording(module: nn.Module, arguments: tuple[Any, ...]) -> Callable[..., Tensor] | None:
    """What does the same as the module on such arguments; None where this torch cannot."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # this way of recording is to go one day
            return cast(Callable[..., Tensor], torch.jit.trace(module, arguments, check_trace=False))  # type: ignore[no-untyped-call]
    except (AttributeError, RuntimeError, ValueError):
        return None
