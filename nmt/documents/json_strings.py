"""JSON and JSON Lines: the strings at some key paths are translated, and every other character is
copied.

A key path names the keys from the root, joined by dots, such as `title` or `items.*.text`. `*`
stands for any key or index of an array, `**` for any number of them. A path that leads to an array
selects the strings in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from json import JSONEncoder

from nmt.core.errors import DataError, UsageError, suggest_closest
from nmt.documents.formats import DocumentOptions
from nmt.documents.splicing import SplicedDocument
from nmt.documents.strings import StringLines, StringPart
from nmt.documents.text_file import TextFile

MAX_LISTED = 10
"""Maximum number of key paths in an error message."""
MAX_DEPTH = 100
"""Maximum number of open objects and arrays."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')
_NAME = r"(?<![\w:@]):[a-zA-Z_]\w+(?![\w:])"
"""A name of Laravel, such as `:attribute`, in place of which a program inserts text."""
_SEPARATOR = "\0"  # between the keys of a path


@dataclass(frozen=True)
class String:
    """A string value, as a range of the file."""

    start: int
    end: int
    path: tuple[str | int, ...]
    """Keys, and indices of arrays."""

    @property
    def pattern(self) -> str:
        """The path as `--key` takes it, with `*` for indices."""
        return ".".join("*" if isinstance(key, int) else key for key in self.path)


def parse(data: bytes, options: DocumentOptions) -> SplicedDocument:
    """Parse JSON, or one JSON value per line.

    Raises:
        UsageError: no key path is given, or one matches no string.
        DataError: the JSON or its encoding is invalid.
    """
    file = TextFile.decode(data, options.encoding_errors)
    _check(file)
    strings = list(_strings(file.text))
    patterns = list(dict.fromkeys(string.pattern for string in strings))
    listed = ", ".join(patterns[:MAX_LISTED])
    if len(patterns) > MAX_LISTED:
        listed += f" and {len(patterns) - MAX_LISTED} more"
    paths = f"key paths with strings: {listed}" if patterns else "the file has no strings"
    if not options.keys:
        raise UsageError("--key is required for JSON", paths)
    selected = _select(strings, options.keys, patterns, paths)
    # If the file is ASCII with escapes, a new text has them, too.
    is_ascii = file.text.isascii() and "\\u" in file.text
    encode = JSONEncoder(ensure_ascii=is_ascii).encode
    parts = []
    for string in strings:
        if string in selected:
            source = json.loads(file.text[string.start : string.end])
            # A lone surrogate is valid JSON, but not text.
            text = source.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            lines = StringLines(text, [_NAME], has_bars=True)
            parts.append(StringPart(string.start, string.end, lines, encode))
    return SplicedDocument(file, parts)


def _select(
    strings: Sequence[String], keys: Iterable[str], patterns: Sequence[str], paths: str
) -> set[String]:
    """Return the strings that key paths select; `patterns` and `paths` are for the hint."""
    selected = set()
    for key in keys:
        matches = {string for string in strings if _matches(key, string.path)}
        if not matches:
            hint = suggest_closest(key, patterns)
            raise UsageError(
                f"--key {key} matches no string", f"{hint} ({paths})" if hint else paths
            )
        selected |= matches
    return selected


def _check(file: TextFile) -> None:
    """Raise an error if the file is neither JSON nor JSON Lines."""
    try:
        try:
            json.loads(file.text)
        except json.JSONDecodeError as error:
            lines = file.text.split("\n")
            if not error.msg.startswith("Extra data") or not _is_json(lines[0]):
                raise DataError(
                    f"line {error.lineno}: not valid JSON: {error.msg}", "correct the file"
                ) from None
            for i, line in enumerate(lines, 1):
                if line.strip() and not _is_json(line):
                    raise DataError(
                        f"line {i}: not valid JSON",
                        "correct the line; JSON Lines has one value per line",
                    ) from None
    except RecursionError:
        raise DataError("the JSON is nested too deeply") from None
    except ValueError as error:  # an integer of thousands of digits
        raise DataError(f"not valid JSON: {error}") from None


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except json.JSONDecodeError:
        return False
    return True


def _strings(text: str) -> Iterator[String]:
    """Yield the string values of valid JSON; names of members are not values."""
    path: list[str | int] = []  # the current key or index of each open object or array
    is_key = False
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in "{[":
            if len(path) == MAX_DEPTH:  # each string has its path
                raise DataError(f"the JSON is nested more than {MAX_DEPTH} levels deep")
            path.append("" if token == "{" else 0)
            is_key = token == "{"
        elif token in "}]":
            path.pop()
            is_key = False  # of an empty object
        elif token == ",":
            last = path[-1]
            is_key = isinstance(last, str)
            if isinstance(last, int):
                path[-1] = last + 1
        elif token == ":":
            is_key = False
        elif token[0] == '"' and is_key:
            path[-1] = json.loads(token)
        elif token[0] == '"':
            yield String(match.start(), match.end(), tuple(path))


def _matches(key: str, path: tuple[str | int, ...]) -> bool:
    """Return whether a key path selects a string. A dot also matches a dot within a key."""
    wildcards = {"*": f"[^{_SEPARATOR}]*+", "**": ".*"}
    pattern = rf"[{_SEPARATOR}.]".join(
        wildcards.get(part, re.escape(part)) for part in key.split(".")
    )
    first, *others = pattern.split(".*")
    # Atomic groups, as in fnmatch: without backtracking, the time is not exponential in the
    # wildcards
    if others:
        pattern = first + "".join(f"(?>.*?{each})" for each in others[:-1]) + ".*" + others[-1]
    paths = [path, path[:-1]] if path and isinstance(path[-1], int) else [path]
    return any(re.fullmatch(pattern, _SEPARATOR.join(map(str, each)), re.DOTALL) for each in paths)
