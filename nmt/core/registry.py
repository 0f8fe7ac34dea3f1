"""Spec strings: `"beam(beam_size=5)"` selects a function from a registry and binds its keyword-only
options.

A registry is a dict from names to functions. Options are read from the function's signature, so a
new option needs only a new keyword-only argument.
"""

from __future__ import annotations

import ast
import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from nmt.core.errors import ConfigError, suggest

F = TypeVar("F", bound=Callable[..., Any])


def parse(spec: str) -> tuple[str, dict[str, Any]]:
    """Split `"name(a=1, b='x')"` into a name and a dict of options.

    Raises:
        ConfigError: the spec is not a name with literal keyword options.
    """
    hint = "write a name, optionally with options: beam(beam_size=5)"
    text = spec.strip()
    booleans = {"true": True, "false": False}  # as in YAML
    if text.count("(") != text.count(")"):
        hint = (
            "a parenthesis is missing; quote specs that contain commas in a YAML list:"
            " ['length(max=40, min=2)']"
        )
    name, parenthesis, rest = text.partition("(")
    if not name.replace("-", "_").isidentifier():
        raise ConfigError(f"cannot read '{spec}'", hint)
    if not parenthesis:
        return name, {}
    try:  # a placeholder replaces the name, which may contain a dash
        call = ast.parse(f"f({rest}", mode="eval").body
        if not isinstance(call, ast.Call) or call.args or ast.unparse(call.func) != "f":
            raise ValueError
        for keyword in call.keywords:
            if isinstance(keyword.value, ast.Name) and keyword.value.id in booleans:
                keyword.value = ast.Constant(booleans[keyword.value.id])
            elif isinstance(keyword.value, ast.Name):
                hint = (
                    f"{keyword.arg} must be a number (0.5, 2e-3) or a quoted string, not"
                    f" {keyword.value.id}"
                )
        options = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords if k.arg}
        if len(options) != len(call.keywords):
            raise ValueError
    except (
        SyntaxError,
        ValueError,
        TypeError,
        RecursionError,
        MemoryError,
    ):  # also a list as a key, deep nesting
        raise ConfigError(f"cannot read '{spec}'", hint) from None
    return name, options


def format_spec(name: str, options: Mapping[str, Any]) -> str:
    """Return the spec string for a name and options; the inverse of `parse`."""
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in options.items())})"


def resolve(
    family: str, registry: Mapping[str, F], spec: str, shared_options: Iterable[str] = ()
) -> F:
    """Return the function that `spec` selects, with its options bound.

    Args:
        family: what the registry contains, for error messages ("search", "corpus").
        registry: function by name; options are the keyword-only arguments.
        spec: `name` or `name(option=value, ...)`.
        shared_options: options of all functions that the caller has removed from `spec`, for error
            messages.

    Raises:
        ConfigError: unknown name, unknown option, or an option of the wrong type.
    """
    name, options = parse(spec)
    if name not in registry:
        raise ConfigError(f"unknown {family} '{name}'", suggest(name, registry))
    function = registry[name]
    types_by_option = options_of(function)
    for key, value in options.items():
        if key not in types_by_option:
            option_names = ", ".join((*types_by_option, *shared_options)) or "none"
            raise ConfigError(
                f"{family} '{name}' has no option '{key}'", f"its options: {option_names}"
            )
        expected = types_by_option[key]
        if not accepts(expected, value):
            label = getattr(expected, "__name__", str(expected))
            raise ConfigError(f"{family} '{name}': {key} must be {label}, got {value!r}")
    missing = [
        key
        for key, p in _keyword_only(function).items()
        if p.default is p.empty and key not in options
    ]
    if missing:
        raise ConfigError(
            f"{family} '{name}' requires {', '.join(missing)}",
            f"for example {name}({missing[0]}=...)",
        )
    return typing.cast(F, functools.partial(function, **options)) if options else function


def options_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Map each keyword-only option of `function` to its annotated type."""
    signature = function.__init__ if isinstance(function, type) else function  # type: ignore[misc]
    hints = typing.get_type_hints(signature)
    return {name: hints.get(name, Any) for name in _keyword_only(function)}


def _keyword_only(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(function).parameters
    return {name: p for name, p in parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}


def accepts(expected: Any, value: Any) -> bool:
    """Return whether a literal matches an annotation. An int matches float; a bool never matches a
    number."""
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
