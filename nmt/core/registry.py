"""Spec strings: `"beam(beam_size=5)"` selects a function from a registry and binds its keyword-only
options.

A registry is a dict from names to functions. Options are read from the function's signature, so a
new option needs only a new keyword-only argument.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from nmt.core.errors import ConfigError, suggest_closest
from nmt.core.plugins import Components, unknown_component
from nmt.core.ranges import check_ranges

Options = dict[str, Any]
F = TypeVar("F", bound=Callable[..., Any])
BOOLEANS = {"true": True, "false": False}
"""As in YAML."""
_TYPE_NAMES = {int: "an integer", float: "a number", bool: "true or false", str: "text"}


def parse(spec: str) -> tuple[str, Options]:
    """Split `"name(a=1, b='x')"` into a name and a dict of options.

    Raises:
        ConfigError: the spec is not a name with literal keyword options.
    """
    hint = "write a name, optionally with options: beam(beam_size=5)"
    if spec.count("(") != spec.count(")"):
        hint = (
            "a parenthesis is missing; quote specs that contain commas in a YAML list:"
            " ['length(max=40, min=2)']"
        )
    name, parenthesis, rest = spec.strip().partition("(")
    if not name.replace("-", "_").isidentifier():
        raise ConfigError(f"cannot read '{spec}'", hint)
    options: Options = {}
    if not parenthesis:
        return name, options
    if spec.count("(") == spec.count(")"):
        hint = "write numbers as 0.5 or 2e-3, and text in quotes: files(train='my/corpus')"
    try:
        call = _parse_call(rest)
        if call.args:
            hint = "each option needs its name: beam(beam_size=5), datasets(path='my/folder')"
            raise ValueError
        for keyword in call.keywords:
            value = keyword.value
            if keyword.arg is None or keyword.arg in options:
                raise ValueError
            word = value.id if isinstance(value, ast.Name) else ""
            if word in BOOLEANS:
                options[keyword.arg] = BOOLEANS[word]
                continue
            if word:
                hint = f"write a number as 0.5 or 2e-3, and text in quotes: {keyword.arg}='{word}'"
            options[keyword.arg] = ast.literal_eval(value)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        # Also a list as a key, and deep nesting.
        raise ConfigError(f"cannot read '{spec}'", hint) from None
    return name, options


def _parse_call(options: str) -> ast.Call:
    """Return the call with the options `a=1, b='x')`."""
    # A placeholder replaces the name, which may contain a dash.
    call = ast.parse(f"f({options}", mode="eval").body
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
        return call
    raise ValueError


def format_spec(name: str, options: Mapping[str, Any]) -> str:
    """Return the spec string for a name and options; the inverse of `parse`."""
    arguments = [f"{key}={value!r}" for key, value in options.items()]
    return f"{name}({', '.join(arguments)})"


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
        ConfigError: unknown name, unknown option, or an option of the wrong type or out of range.
    """
    name, options = parse(spec)
    if name not in registry:
        raise unknown_component(f"unknown {family} '{name}'", name, registry)
    function = registry[name]
    kind = f"{family} '{name}'"
    _check_types(kind, options, options_of(function), shared_options)
    check_ranges(options, options_of(function, include_ranges=True), f"{kind}: ")
    signature = inspect.getfullargspec(function)
    optional = signature.kwonlydefaults or {}
    missing = [key for key in signature.kwonlyargs if key not in options | optional]
    if missing:
        example = f"for example {name}({missing[0]}=...)"
        raise ConfigError(f"{kind} requires {', '.join(missing)}", example)
    component: Callable[..., Any] = function
    if options:
        component = functools.partial(function, **options)
    if isinstance(registry, Components):
        component = registry.checked(name, component)
    return typing.cast(F, component)


def _check_types(
    kind: str, options: Options, kinds: Options, shared_options: Iterable[str]
) -> None:
    for key, value in options.items():
        if key not in kinds:
            names = (*kinds, *shared_options)
            hint = f"its options: {', '.join(names) or 'none'}"
            if closest := suggest_closest(key, names):
                hint = f"{closest} {hint}"
            raise ConfigError(f"{kind} has no option '{key}'", hint)
        expected = kinds[key]
        if not accepts(expected, value):
            raise ConfigError(f"{kind}: {key} must be {describe_type(expected)}, got {value!r}")


def describe_type(expected: Any) -> str:
    """Return the words for an annotation, for error messages."""
    origin = typing.get_origin(expected)
    parts = typing.get_args(expected)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(describe_type(part) for part in parts if part is not type(None))
    if origin is tuple:
        return f"a list of {describe_type(parts[0])}"
    return _TYPE_NAMES.get(expected, "another value")


@functools.cache
def options_of(function: Callable[..., Any], *, include_ranges: bool = False) -> Options:
    """Map each keyword-only option of `function` to its annotated type, with its `Range` or
    without."""
    source = function
    if isinstance(function, type) and not dataclasses.is_dataclass(function):
        source = function.__init__  # type: ignore[misc]
    hints = typing.get_type_hints(source, include_extras=include_ranges)
    names = inspect.getfullargspec(function).kwonlyargs
    return {name: hints.get(name, Any) for name in names}


def accepts(expected: Any, value: Any) -> bool:
    """Return whether a literal matches an annotation. An int matches float; a bool never matches a
    number."""
    if expected is Any:
        return True
    origin = typing.get_origin(expected)
    parts = typing.get_args(expected)
    if origin in (typing.Union, types.UnionType):
        return any(accepts(part, value) for part in parts)
    if origin is tuple:
        if not isinstance(value, tuple | list):
            return False
        if Ellipsis in parts:
            parts = parts[:1] * len(value)
        return len(parts) == len(value) and all(map(accepts, parts, value))
    if isinstance(value, bool):
        return expected is bool
    if expected is float:
        expected = int | float
    return isinstance(value, expected)
