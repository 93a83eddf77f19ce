"""Traces a method so that its operations run without Python between them."""

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

CALLS_BEFORE_TRACING = 64  # tracing costs what some 200 traced calls save
Signature = tuple[tuple[str, torch.dtype], ...]  # names and dtypes of the arguments that are not None


class Traced:
    """A method that is traced (`torch.jit.trace`) after `CALLS_BEFORE_TRACING` calls.

    At batch size 1 Python overhead is more than half of a step of search. Sizes may change from call to call;
    control flow may depend only on which arguments are None and on their dtypes: each such signature has its trace.

    Args:
        method: takes tensors and nested sequences of tensors, by keyword.
        layers: the modules it uses; no two of them share weights.
    """

    def __init__(self, method: Callable[..., Tensor], layers: Iterable[nn.Module]) -> None:
        self.method = method
        self.layers = layers
        self.n_calls: Counter[Signature] = Counter()
        self.traces: dict[Signature, Callable[..., Tensor] | None] = {}  # None: this torch cannot trace it

    def __call__(self, **arguments: Any) -> Tensor:
        """The method's result; arguments that are None are left out."""
        given = {name: value for name, value in arguments.items() if value is not None}
        values = tuple(given.values())
        signature = tuple((name, dtype_of(value)) for name, value in given.items())
        self.n_calls[signature] += 1
        if self.n_calls[signature] > CALLS_BEFORE_TRACING and signature not in self.traces:
            self.traces[signature] = trace(_Method(self.method, self.layers, tuple(given)), values)
        run = self.traces.get(signature)
        return run(*values) if run else self.method(**given)


def dtype_of(value: Any) -> torch.dtype:
    """The dtype of a tensor, or of the first in nested sequences of tensors."""
    while not isinstance(value, Tensor):
        value = value[0]
    return value.dtype


class _Method(nn.Module):
    """The method as a module: `torch.jit.trace` takes weights of any kind only from modules."""

    def __init__(self, method: Callable[..., Tensor], layers: Iterable[nn.Module], names: Sequence[str]) -> None:
        super().__init__()
        self.method = method
        self.layers = nn.ModuleList(layers)
        self.names = names

    def forward(self, *values: Any) -> Tensor:
        return self.method(**dict(zip(self.names, values, strict=True)))


def trace(module: nn.Module, arguments: tuple[Any, ...]) -> Callable[..., Tensor] | None:
    """The traced module, or None if this torch cannot trace it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch.jit.trace is deprecated
            return cast(Callable[..., Tensor], torch.jit.trace(module, arguments, check_trace=False))  # type: ignore[no-untyped-call]
    except (AttributeError, RuntimeError, ValueError):
        return None
