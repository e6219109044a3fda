"""YAML as plain values, with the line of every key; safe whatever the file holds.

Only plain scalars, lists and dicts come out: no tag can build anything else. Size, nesting and the number of
values after aliases are expanded are bounded, and a key that stands twice is an error.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from spica.errors import ConfigError, Problem, nearest

MAX_BYTES: Final = 1 << 20
MAX_VALUES: Final = 100_000
MAX_DEPTH: Final = 50
MAX_KEY: Final = 80

_BOM: Final = b"\xef\xbb\xbf"
_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
#: Integers beyond these bits have no business in a message.
_SHOWN_BITS: Final = 64
#: An underscore between two digits.
_DIGIT_GROUPS: Final = re.compile(r"(?<=\d)_(?=\d)")
_PLAIN_TAGS: Final = frozenset(
    f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "seq", "map", "timestamp")
)
_MERGE: Final = "tag:yaml.org,2002:merge"


@dataclass(frozen=True, slots=True)
class YamlTree:
    """A YAML file: its value, and where each dotted key (``a.b[2].c``) stands in it (lines from 1).

    ``problems`` holds what is wrong with the YAML itself while the rest of it can still be checked; the value
    of such a key is the first one given, or None.
    """

    value: object
    lines: Mapping[str, int]
    source: str
    problems: tuple[Problem, ...] = ()

    def where(self, key: str) -> str:
        """``file:line`` of a dotted key; of the nearest enclosing key that stands in the file otherwise."""
        while key not in self.lines and key:
            key = key[: max(key.rfind("."), key.rfind("["), 0)]
        line = self.lines.get(key)
        return f"{self.source}:{line}" if line is not None else self.source


#: The file name that stands for the standard input, and what stands for it in messages.
STDIN: Final = "-"
STDIN_SHOWN: Final = "<stdin>"


def read_text(path: Path) -> str:
    """The text of a config file, or of the standard input. Raises ConfigError for anything that is not a
    readable UTF-8 file."""
    if str(path) == STDIN:
        return _decoded(_standard_input(), STDIN_SHOWN)
    source = str(path)
    try:
        if path.is_dir():
            raise ConfigError(Problem("this is a directory, not a YAML file", where=source))
        if not path.exists():
            remedy = _missing_remedy(path)
            raise ConfigError(Problem("no such file", where=source, remedy=remedy))
        if not path.is_file():
            remedy = "to read a pipe, give - and send it to the standard input"
            raise ConfigError(Problem("this is not a regular file", where=source, remedy=remedy))
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(Problem(f"cannot be read: {error.strerror or error}", where=source)) from error
    except ValueError as error:  # a null byte in the name
        raise ConfigError(Problem(f"cannot be a file name: {error}", where=repr(source))) from error
    return _decoded(data, source)


def _standard_input() -> bytes:
    try:
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    except AttributeError:  # it is None
        raise ConfigError(Problem("the standard input is closed", where=STDIN_SHOWN)) from None
    except OSError as error:
        raise ConfigError(
            Problem(f"the standard input cannot be read: {error}", where=STDIN_SHOWN)
        ) from error


def _decoded(data: bytes, source: str) -> str:
    if len(data) > MAX_BYTES:
        raise ConfigError(Problem(f"the file is larger than {MAX_BYTES // 1024} KiB", where=source))
    try:
        return data.removeprefix(_BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        message = f"the file is not UTF-8 text (byte 0x{data[error.start]:02x})"
        raise ConfigError(Problem(message, where=f"{source}:{line}", remedy="save it as UTF-8")) from error


def _missing_remedy(path: Path) -> str:
    if not path.parent.is_dir():
        return f"the folder {path.parent} does not exist"
    # A link to nothing is there by name.
    siblings = sorted(p.name for p in path.parent.iterdir() if p.suffix in (".yaml", ".yml") and p.exists())
    near = nearest(path.name, siblings)
    return f"did you mean {path.parent / near}?" if near else ""


def parse(text: str, source: str) -> YamlTree:
    """The one document in ``text``; ``source`` stands for the file in messages.

    Raises ConfigError when there is no such document, or when it passes the bounds.
    """
    root = _compose(text, source)
    walk = _Walk(source)
    value = walk.value(root, "", 0)
    return YamlTree(value, walk.lines, source, tuple(walk.problems))


def parse_value(text: str, source: str) -> object:
    """A value given outside a file, by the same rules as in one. Raises ConfigError."""
    tree = parse(text, source)
    if tree.problems:
        raise ConfigError(tree.problems)
    return tree.value


def _compose(text: str, source: str) -> yaml.Node:
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        raise ConfigError(_syntax_problem(error, text, source)) from error
    except yaml.YAMLError as error:
        raise ConfigError(Problem(_one_line(str(error)), where=source)) from error
    except RecursionError as error:
        raise ConfigError(Problem(f"values are nested deeper than {MAX_DEPTH}", where=source)) from error
    finally:
        loader.dispose()
    if root is None:
        raise ConfigError(Problem("there is nothing in it", where=source, remedy=_START))
    return root


_START: Final = "a configuration needs the blocks search_space and workload"


def _syntax_problem(error: yaml.MarkedYAMLError, text: str, source: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark is not None else 1
    message = _one_line(error.problem or str(error))
    remedy = ""
    if "expected a single document" in (error.context or "") or "but found another document" in message:
        message, remedy = "there is more than one YAML document", "keep one document, without '---' lines"
    elif "\t" in _line(text, line) or "\\t" in message:
        message, remedy = f"YAML cannot be read: {message}", "indent with spaces: YAML takes no tabs"
    else:
        context = f" ({_one_line(error.context)})" if error.context else ""
        message = f"YAML cannot be read: {message}{context}"
    return Problem(message, where=f"{source}:{line}", remedy=remedy)


def _line(text: str, number: int) -> str:
    lines = text.splitlines()
    return lines[number - 1] if 0 < number <= len(lines) else ""


def _one_line(text: str) -> str:
    return " ".join(text.split())


class _Walk:
    """Builds values from nodes, and gathers problems and lines on the way."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.lines: dict[str, int] = {}
        self.problems: list[Problem] = []
        self._count = 0
        self._open: set[int] = set()
        self._constructor = yaml.constructor.SafeConstructor()

    def value(self, node: yaml.Node, key: str, depth: int) -> object:
        line = node.start_mark.line + 1
        self.lines.setdefault(key, line)
        self._count += 1
        if self._count > MAX_VALUES:
            message = f"the file holds more than {MAX_VALUES} values once its aliases are expanded"
            raise ConfigError(Problem(message, where=f"{self.source}:{line}"))
        if depth > MAX_DEPTH:
            raise ConfigError(
                Problem(f"values are nested deeper than {MAX_DEPTH}", where=f"{self.source}:{line}")
            )
        if id(node) in self._open:
            raise ConfigError(Problem("an alias contains itself", key, f"{self.source}:{line}"))
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, key)
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                self._refuse_tag(node, key)
                return [self.value(item, f"{key}[{i}]", depth + 1) for i, item in enumerate(node.value)]
            assert isinstance(node, yaml.MappingNode)
            self._refuse_tag(node, key)
            return self._mapping(node, key, depth)
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: yaml.MappingNode, key: str, depth: int) -> dict[str, object]:
        result: dict[str, object] = {}
        merged: dict[str, object] = {}
        first: dict[str, int] = {}
        for name_node, value_node in node.value:
            line = name_node.start_mark.line + 1
            if name_node.tag == _MERGE:
                merged |= self._merge(value_node, key, depth)
                continue
            name = self._name(name_node, key)
            if name is None:
                continue
            at = f"{key}.{name}" if key else name
            if name in first:
                message = f"the key stands twice, in lines {first[name]} and {line}"
                self._add(message, at, line, remedy="keep one of them")
                continue
            first[name] = line
            self.lines[at] = line
            result[name] = self.value(value_node, at, depth + 1)
        return merged | result

    def _merge(self, node: yaml.Node, key: str, depth: int) -> dict[str, object]:
        """``<<: *alias``: the entries of one mapping, or of several with the first one winning."""
        nodes = list(node.value) if isinstance(node, yaml.SequenceNode) else [node]
        merged: dict[str, object] = {}
        for item in nodes:
            value = self.value(item, key, depth + 1)
            if not isinstance(value, dict):
                self._add("'<<' takes a mapping", key, item.start_mark.line + 1)
                continue
            merged = value | merged
        return merged

    def _name(self, node: yaml.Node, key: str) -> str | None:
        line = node.start_mark.line + 1
        if not isinstance(node, yaml.ScalarNode):
            self._add("a key must be a plain name", key, line)
            return None
        # A key such as `on` or `8` is a boolean or a number to YAML; its text names what was meant.
        name = str(node.value)
        if len(name) > MAX_KEY or not name.isprintable():
            self._add(f"{name[:40]!a} cannot be the name of a setting", key, line)
            return None
        return name

    def _scalar(self, node: yaml.ScalarNode, key: str) -> object:
        if not self._refuse_tag(node, key):
            return None
        if node.tag.endswith(":timestamp"):
            return node.value
        if node.tag.endswith((":int", ":float")) and ":" in node.value:
            # YAML 1.1 reads 1:30 in base 60, which nobody means here.
            return node.value
        try:
            value: object = self._constructor.construct_object(node, deep=True)
        except (ValueError, LookupError, yaml.YAMLError):
            self._add(f"{node.value[:40]!a} cannot be read as {node.tag.rsplit(':', 1)[-1]}", key, None, node)
            return None
        self._decimal(node, value, key)
        return value

    def _decimal(self, node: yaml.ScalarNode, value: object, key: str) -> None:
        """Numbers are decimal, with single underscores between digits; YAML 1.1 reads much else as one."""
        if type(value) not in (int, float):
            return
        text = node.value.lstrip("+-").replace("_", "")
        if type(value) is int and len(text) > 1 and text[0] == "0" and text.isdigit():
            remedy = f"write {int(text)}, or {value} if that is meant"
            self._add(f"{node.value} is octal to YAML: {value}", key, None, node, remedy=remedy)
        elif type(value) is int and value.bit_length() < _SHOWN_BITS and not text.isdigit():
            # A larger one is out of every range, which is said where ranges are known.
            self._add(f"{node.value} is no decimal number", key, None, node, remedy=f"write {value}")
        elif "_" in _DIGIT_GROUPS.sub("", node.value):
            self._add(f"{node.value} has a stray underscore", key, None, node, remedy=f"write {value}")

    def _refuse_tag(self, node: yaml.Node, key: str) -> bool:
        if node.tag in _PLAIN_TAGS:
            return True
        self._add(
            f"the tag {node.tag.replace('tag:yaml.org,2002:', '!!')} is not allowed",
            key,
            None,
            node,
            remedy="write plain values",
        )
        return False

    def _add(
        self, message: str, key: str, line: int | None, node: yaml.Node | None = None, *, remedy: str = ""
    ) -> None:
        if line is None and node is not None:
            line = node.start_mark.line + 1
        self.problems.append(Problem(message, key, f"{self.source}:{line}", remedy=remedy))
