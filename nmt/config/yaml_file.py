"""Config files: YAML 1.2, `key=value` overrides, and errors that list all faults with their lines."""

import copy
import difflib
import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from nmt.config.listing import settings
from nmt.config.schema import Config
from nmt.errors import ConfigError, os_errors_as

MAX_CONFIG_BYTES = 100_000  # maximum size of a config file; a larger one is a mistake or an attack
MAX_FAULTS = 20  # maximum number of faults that a message lists
COMMAND_LINE = "command line"
KeyPath = tuple[str, ...]
Origins = dict[KeyPath, str]  # the place where each key is set: "demo.yaml:12", or `COMMAND_LINE`
# Settings that no longer exist, each with its neutral value, or None if every value is neutral. Old model files, runs
# and configs still contain them.
GONE = {
    ("data", "context"): 0,
    ("decode", "length_penalty"): "average",
    ("train", "decoder_input"): "teacher_forcing",
    ("train", "snapshots"): None,
    ("train", "sampling_rate"): None,
}


class CoreLoader(yaml.SafeLoader):
    """A loader of YAML 1.2's core schema, in which `3e-4` is a number and `no` is a string.

    Aliases are refused, because nested aliases can turn a small file into a huge tree.
    """

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="a config has no aliases", problem_mark=mark)
        return super().compose_node(parent, index)


class CoreDumper(yaml.SafeDumper):
    """A dumper that quotes a string such as `no`. Parsers of YAML 1.1 and 1.2 then read it as a string."""


def represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Represent a string. Quote it if it has unprintable characters."""
    style = None if text.isprintable() else '"'
    return dumper.represent_scalar(f"{TAG}str", text, style)


# The core schema: for each type, the pattern of its scalars.
TAG = "tag:yaml.org,2002:"
SCALARS = {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?[0-9]+",
    "float": r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?",
}
CoreLoader.yaml_implicit_resolvers = {}  # remove the resolvers of YAML 1.1
for name, pattern in SCALARS.items():
    whole = re.compile(f"^(?:{pattern})$")
    for schema in (CoreLoader, CoreDumper):
        schema.add_implicit_resolver(TAG + name, whole, None)  # None: whatever its first character is
# PyYAML's own constructors would also read 1_000 and 1:30 as numbers.
CoreLoader.add_constructor(f"{TAG}float", lambda _, node: float(node.value))
CoreLoader.add_constructor(f"{TAG}int", lambda _, node: int(node.value))
CoreDumper.add_representer(str, represent_text)
# PyYAML's exceptions for invalid content, such as KeyError for `!!bool maybe`.
YAML_ERRORS = (yaml.YAMLError, ValueError, RecursionError, KeyError, AttributeError, TypeError)
SHORT = reprlib.Repr()  # limits the length and the nesting of a value in a message
SHORT.maxstring = SHORT.maxother = SHORT.maxlong = 200


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read a config file, apply `key=value` overrides, and validate the config.

    Raises ConfigError with one line per fault.
    """
    tree, origins = read_yaml(path)
    for override in overrides:
        keys, value = parse_override(override)
        # Find the section of the key, or create it.
        section = tree
        for n, parent in enumerate(keys[:-1], 1):
            if not isinstance(section.get(parent), dict):
                section[parent] = {}
                origins[keys[:n]] = COMMAND_LINE
            section = section[parent]
        section[keys[-1]] = value
        origins[keys] = COMMAND_LINE
    return check_config(tree, origins, str(path))


def parse_override(override: str) -> tuple[KeyPath, Any]:
    """Split `key=value` into the path of the key and the parsed value. Raises ConfigError if `override` is invalid."""
    # Split at the first "=", because the value may contain others.
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise ConfigError(f"'{override}' is not a setting", hint="write key=value, for example train.lr=3e-4")
    try:
        value = yaml.load(text, CoreLoader)  # noqa: S506 - a SafeLoader
    except YAML_ERRORS as error:
        raise ConfigError(f"'{override}': the value is not valid YAML", hint="quote it") from error
    return tuple(key.split(".")), value


def read_yaml(path: Path) -> tuple[dict[str, Any], Origins]:
    """Return the mapping in a YAML file, and the file and line of every key.

    Raises ConfigError if the file cannot be read, is too large, or is invalid.
    """
    with os_errors_as(ConfigError, f"read {path}", hint="give the path of a config file"), path.open("rb") as file:
        content = file.read(MAX_CONFIG_BYTES + 1)  # also from a pipe, as in `nmt train <(...)`
    if len(content) > MAX_CONFIG_BYTES:
        raise ConfigError(f"{path} has over {MAX_CONFIG_BYTES:,} bytes, too many for a config", hint="check the path")
    origins: Origins = {}
    tree: Any = {}
    try:
        # 1. Parse the file to nodes, and collect the line of each key.
        loader = CoreLoader(content.decode("utf-8-sig"))
        node = loader.get_single_node()
        for key, line in keys_of(node, ()):
            if key in origins:
                raise ConfigError(f"{path}:{line}: duplicate key '{'.'.join(key)}'", hint="delete one of them")
            origins[key] = f"{path}:{line}"
        # 2. Convert the nodes to values. An empty file has no node.
        if node is not None:
            tree = loader.construct_document(node)
    except YAML_ERRORS as error:
        mark = getattr(error, "problem_mark", None)  # only in PyYAML's errors; its lines count from 0
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or str(error)
        first_line = problem.partition("\n")[0]
        message = f"{place}: not valid YAML: {first_line:.200}"
        raise ConfigError(message, hint="check indentation, colons and quotes") from error
    # 3. Check that the file is a mapping.
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: a config must be a mapping of keys to values", hint="see `nmt config`")
    return tree, origins


def keys_of(node: yaml.Node | None, prefix: KeyPath) -> Iterator[tuple[KeyPath, int]]:
    """Yield the path and the line of every key below a YAML node. The items of a list have numbers as keys."""
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield from keys_of(item, (*prefix, str(number)))
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            path = (*prefix, str(key.value))
            yield path, key.start_mark.line + 1
            yield from keys_of(value, path)


def check_config(tree: Mapping[str, Any], origins: Origins, name: str) -> Config:
    """Validate a tree of settings. Raises ConfigError with one line per fault.

    Each line begins with the origin of the fault, or with `name` if the origin is unknown.
    """
    # 1. Leave out the settings in `GONE` that have a neutral value. The schema refuses other values.
    tree = copy.deepcopy(tree)
    for (section, key), neutral in GONE.items():
        named = tree.get(section)
        if isinstance(named, dict) and key in named and neutral in (None, named[key]):
            del named[key]
    # 2. Validate the rest.
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        listed = error.errors()[:MAX_FAULTS]
        faults = [describe_with_origin(fault, tree, origins, name) for fault in listed]
        n_left = error.error_count() - MAX_FAULTS
        if n_left > 0:
            faults.append(f"{name}: and {n_left:,} more")
        raise ConfigError(*faults, hint="`nmt config` lists all keys and ranges") from error


def describe_with_origin(fault: Mapping[str, Any], tree: Any, origins: Origins, name: str) -> str:
    """Describe one of pydantic's errors in one line: the origin of the key, the key, and what is wrong."""
    path = written_path(fault["loc"], tree)
    # 1. Find the origin of the key, or of the nearest section around it.
    origin = name
    for n in range(1, len(path) + 1):
        origin = origins.get(path[:n], origin)

    # 2. Describe what is wrong.
    key = ".".join(path)[:100]
    if fault["type"] == "extra_forbidden":
        return f"{origin}: unknown key '{key}'{suggestion(key)}"
    if fault["type"] == "missing":
        return f"{origin}: '{key}' is missing"
    message = described(fault)
    # The message of a value_error names the keys itself.
    return f"{origin}: {message}" if fault["type"] == "value_error" else f"{origin}: '{key}': {message}"


def written_path(location: Sequence[str | int], tree: Any) -> KeyPath:
    """Return the path of a fault in the tree that the user wrote.

    pydantic's path can differ, because it has an index even if the user wrote a single item.
    """
    path = []
    for part in location:
        # Leave out the index of a single item.
        is_list = isinstance(tree, list | tuple)
        is_key = isinstance(tree, Mapping) and part in tree
        if isinstance(part, int) and not is_list and not is_key:
            continue
        path.append(str(part))
        if is_list or is_key:
            tree = tree[part]
    return tuple(path)


def suggestion(key: str) -> str:
    """Return a hint that names a known key with the same last part or a similar spelling."""
    # 1. Search for keys with the same last part.
    keys = [setting.key for setting in settings()]
    leaf = key.rpartition(".")[2]
    similar = [name for name in keys if name.endswith(f".{leaf}")]
    if not similar:
        # 2. Search for a key or section with a similar spelling.
        sections = {name.rpartition(".")[0] for name in keys}
        similar = difflib.get_close_matches(key, keys + sorted(sections), n=1, cutoff=0.5)
    return f" (did you mean '{similar[0]}'?)" if similar else ""


def described(fault: Mapping[str, Any]) -> str:
    """Return pydantic's message with the value, such as `input should be less than 1, got 2`."""
    # pydantic puts "Value error, " before the messages of our validators.
    text = str(fault["msg"]).removeprefix("Value error, ")
    message = text[:1].lower() + text[1:]
    if fault["type"] == "value_error":
        return message
    return f"{message}, got {SHORT.repr(fault['input']):.80}"


def dump_config(config: Config) -> str:
    """Return the config as YAML, with all keys. Loading this YAML returns the same config."""
    tree = config.model_dump(mode="json")
    return yaml.dump(tree, Dumper=CoreDumper, sort_keys=False, allow_unicode=True)
