"""Spec strings: `"beam(beam_size=5)"` names a function of a family and binds its keyword-only options.

A family is a literal dict of name to function in the package that owns it. A new option is a new
keyword-only argument of its function and nothing else, because the options are read off the signature.
"""

from __future__ import annotations

import ast
import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from nmt.errors import ConfigError, suggest

F = TypeVar("F", bound=Callable[..., Any])


def parse(spec: str) -> tuple[str, dict[str, Any]]:
    """Split `"name(a=1, b='x')"` into its name and its options.

    Raises:
        ConfigError: the text is not a name with literal keyword options.
    """
    hint = "write a name, or a name with options: beam(beam_size=5)"
    text = spec.strip()
    if text.count("(") != text.count(")"):
        hint = "a bracket is missing; where a comma cuts it in a YAML list, quote it: ['length(max=40, min=2)']"
    name, bracket, rest = text.partition("(")
    if not name.replace("-", "_").isidentifier():
        raise ConfigError(f"cannot read '{spec}'", hint)
    if not bracket:
        return name, {}
    try:  # a call is parsed under a stand-in name, since corpus names may hold a dash
        call = ast.parse(f"f({rest}", mode="eval").body
        if not isinstance(call, ast.Call) or call.args or ast.unparse(call.func) != "f":
            raise ValueError
        for word in (k for k in call.keywords if isinstance(k.value, ast.Name)):
            hint = f"{word.arg} is a number (0.5, 2e-3) or a text in quotes, not a bare {ast.unparse(word.value)}"
        options = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords if k.arg}
        if len(options) != len(call.keywords):
            raise ValueError
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):  # also a list as a key, deep nesting
        raise ConfigError(f"cannot read '{spec}'", hint) from None
    return name, options


def compose(name: str, options: Mapping[str, Any]) -> str:
    """Return the spec that `parse` splits into these."""
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in options.items())})"


def resolve(family: str, table: Mapping[str, F], spec: str) -> F:
    """Return the function that `spec` names with its options bound.

    Args:
        family: what the table holds, for messages ("search", "corpus").
        table: name to function; options are the function's keyword-only arguments.
        spec: `name` or `name(option=value, ...)`.

    Raises:
        ConfigError: unknown name, unknown option, or an option of the wrong type.
    """
    name, options = parse(spec)
    if name not in table:
        raise ConfigError(f"unknown {family} '{name}'", suggest(name, table))
    function = table[name]
    known = options_of(function)
    for key, value in options.items():
        if key not in known:
            listed = ", ".join(known) or "none"
            raise ConfigError(f"{family} '{name}' has no option '{key}'", f"its options: {listed}")
        expected = known[key]
        if not accepts(expected, value):
            label = getattr(expected, "__name__", str(expected))
            raise ConfigError(f"{family} '{name}': {key} must be {label}, got {value!r}")
    missing = [key for key in required_of(function) if key not in options]
    if missing:
        raise ConfigError(f"{family} '{name}' needs {', '.join(missing)}", f"for example {name}({missing[0]}=...)")
    return typing.cast(F, functools.partial(function, **options)) if options else function


def options_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Map each keyword-only option of `function` to its annotated type."""
    made = function.__init__ if isinstance(function, type) else function  # type: ignore[misc]
    hints = typing.get_type_hints(made)
    return {name: hints.get(name, Any) for name in _keyword_only(function)}


def required_of(function: Callable[..., Any]) -> list[str]:
    """Name the keyword-only options of `function` that have no default."""
    return [name for name, p in _keyword_only(function).items() if p.default is inspect.Parameter.empty]


def _keyword_only(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(function).parameters
    return {name: p for name, p in parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}


def accepts(expected: Any, value: Any) -> bool:
    """Say whether a literal fits an annotation: an int passes for a float, a bool never for a number."""
    if expected is Any:
        return True
    origin = typing.get_origin(expected)
    if origin in (typing.Union, types.UnionType):
        return any(accepts(part, value) for part in typing.get_args(expected))
    if origin is tuple:
        parts = typing.get_args(expected)
        if not isinstance(value, tuple | list):
            return False
        if len(parts) == 2 and parts[1] is Ellipsis:
            return all(accepts(parts[0], item) for item in value)
        return len(parts) == len(value) and all(map(accepts, parts, value))
    if expected is type(None):
        return value is None
    if isinstance(value, bool):
        return expected is bool
    return isinstance(value, (int, float) if expected is float else expected)
