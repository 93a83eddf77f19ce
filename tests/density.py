"""How much a reader takes in at once: expression nodes by statement.

The layout of lines plays no part. Of a compound statement, such as `if`, only the head counts; its body has statements
of its own. Docstrings, imports and `pass` do not count.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

EXPRESSIONS = (
    *(ast.Name, ast.Attribute, ast.Subscript, ast.Starred, ast.Constant, ast.Call, ast.BinOp, ast.BoolOp),
    *(ast.Compare, ast.IfExp, ast.NamedExpr, ast.Lambda, ast.GeneratorExp, ast.ListComp, ast.comprehension),
)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
WITHOUT_HEAD = (ast.ClassDef, ast.Try, ast.Import, ast.ImportFrom, ast.Pass, ast.Global, ast.Nonlocal)
TABLES = (ast.Dict, ast.List, ast.Set, ast.Tuple)  # at the level of a module, they may be long
DIRECTIVE = re.compile(r"#\s*(noqa|type:|pragma|mypy|fmt|ruff)")
LARGE = 25  # nodes of a statement that is to be split


@dataclass
class Density:
    """The counts of a folder."""

    sizes: list[int] = field(default_factory=list)  # expression nodes of each statement
    large: list[str] = field(default_factory=list)  # where statements of `LARGE` nodes or more are, tables aside
    n_comments: int = 0  # lines, without directives of tools
    n_nested: int = 0  # comprehensions with two loops, or with another one in each element
    n_conditionals: int = 0  # conditional expressions within a branch of another

    @property
    def content(self) -> int:
        return sum(self.sizes)

    @property
    def mean(self) -> float:
        return self.content / len(self.sizes)

    @property
    def nine_tenths(self) -> int:
        """The most nodes that a statement has, when the tenth with the most is left out."""
        return sorted(self.sizes, reverse=True)[len(self.sizes) // 10]

    @property
    def comments(self) -> float:
        """Comments per 100 statements."""
        return 100 * self.n_comments / len(self.sizes)


def density(folder: Path) -> Density:
    """Count the Python files in a folder and below."""
    counts = Density()
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            counts.n_comments += token.type == tokenize.COMMENT and not DIRECTIVE.match(token.string)
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, COMPREHENSIONS):
                counts.n_nested += is_nested(node)
            elif isinstance(node, ast.IfExp):
                counts.n_conditionals += isinstance(node.body, ast.IfExp) or isinstance(node.orelse, ast.IfExp)
            elif isinstance(node, ast.stmt):
                add_statement(counts, node, f"{path}:{node.lineno}", is_at_top=node in tree.body)
    return counts


def add_statement(counts: Density, statement: ast.stmt, place: str, *, is_at_top: bool) -> None:
    parts = list(head(statement))
    if not parts:
        return
    size = sum(n_expressions(part) for part in parts)
    counts.sizes.append(size)
    is_table = is_at_top and isinstance(getattr(statement, "value", None), TABLES)
    if size >= LARGE and not is_table:
        counts.large.append(place)


def n_expressions(part: ast.AST) -> int:
    return sum(isinstance(node, EXPRESSIONS) for node in ast.walk(part))


def head(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the parts of a statement that are read with it."""
    is_docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    if is_docstring or isinstance(statement, WITHOUT_HEAD):
        return
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        # Names and types of parameters are no expressions.
        yield from statement.decorator_list
        yield from statement.args.defaults
        yield from [default for default in statement.args.kw_defaults if default]
        return
    if not hasattr(statement, "body") and not isinstance(statement, ast.Match):
        yield statement
        return
    for part in ast.iter_child_nodes(statement):
        if isinstance(part, ast.match_case):
            yield from [part.pattern, *filter(None, [part.guard])]
        elif not isinstance(part, ast.stmt):
            yield part


def is_nested(comprehension: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> bool:
    element = comprehension.value if isinstance(comprehension, ast.DictComp) else comprehension.elt
    has_another = any(isinstance(node, COMPREHENSIONS) for node in ast.walk(element))
    return len(comprehension.generators) > 1 or has_another
