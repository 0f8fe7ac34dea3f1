"""Reads and writes `Config`: YAML files and `--set section.key=value`. Unknown keys are errors."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import difflib
import functools
import inspect
import itertools
import re
import typing
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from nmt.core import plugins, untrusted_files
from nmt.core.config import Config, DataConfig, TrainConfig
from nmt.core.errors import ConfigError, suggest
from nmt.core.ranges import check_ranges
from nmt.core.registry import accepts, describe_type

LANGUAGE_CODE = re.compile(r"[A-Za-z0-9]+([-_][A-Za-z0-9]+)*")


_types = functools.cache(typing.get_type_hints)
"""Types of the options of a section; evaluating them takes as long as reading a config."""


def _option_types(section: Any = Config, prefix: str = "") -> dict[str, Any]:
    types: dict[str, Any] = {}
    for name, kind in _types(section).items():
        types |= (
            _option_types(kind, f"{name}.")
            if dataclasses.is_dataclass(kind)
            else {prefix + name: kind}
        )
    return types


OPTION_TYPES = _option_types()
"""Type of each option by its full name ("train.steps")."""
OTHER_NAMES = {
    **dict.fromkeys(
        ("lr", "learning_rate", "warmup", "warmup_steps"),
        "train.schedule=linear(peak=1e-3, warmup=400)",
    ),
    **dict.fromkeys(("batch_size", "max_tokens"), "train.batch_tokens"),
    **dict.fromkeys(("max_steps", "max_updates"), "train.steps"),
    **dict.fromkeys(("beam", "beam_size"), "search=beam(beam_size=5)"),
    **dict.fromkeys(("d_model", "hidden_size"), "model.dim"),
}
"""Options by the names that other toolkits give them, or what sets them."""
REMOVED = {"train.overlap_all_reduce"}
"""Options of older versions, which the configs of their runs contain."""


@contextlib.contextmanager
def _hint_at_options() -> Iterator[None]:
    """Complete errors without a hint."""
    try:
        yield
    except ConfigError as error:
        error.hint = error.hint or "run nmt config --options"
        raise


def load(path: Path | None, overrides: Sequence[str] = ()) -> Config:
    """Read a config file (None: the defaults) and apply `section.key=value` overrides in order.

    Raises:
        ConfigError: the file cannot be read or is not YAML, a key is unknown, or a value has the
            wrong type or range.
    """
    config = read(path)
    if path:
        plugins.offer(config.plugins, path.parent)
    changed = config
    for text in overrides:
        changed = override(changed, text)
    try:
        check(changed)
    except ConfigError as error:
        if path and error.message == _problem(config):
            raise ConfigError(f"config {path}: {error.message}", error.hint) from None
        raise
    return changed


def _problem(config: Config) -> str:
    """Return the message of the error of a config, empty if it is valid."""
    try:
        check(config)
    except ConfigError as error:
        return error.message
    return ""


def load_named(name: str, overrides: Sequence[str] = ()) -> Config:
    """Load the config that the user names, by its path or as a built-in one, and import its
    plug-ins.

    Raises:
        ConfigError: see `find` and `load`; or a plug-in cannot be imported.
    """
    path = find(name)
    plugins.load(read(path).plugins)
    return load(path, overrides)


def read(path: Path | None) -> Config:
    """Read a config file like `load`, without checking the ranges of its values."""
    tree = read_yaml(path) if path else {}
    return _from_tree(tree, path)


@_hint_at_options()
def _from_tree(tree: dict[str, Any], path: Path | None) -> Config:
    """Return the config that the content of a file describes."""
    if unknown := list(_unknown_keys(Config, tree, "")):
        keys = "key" if len(unknown) == 1 else "keys"
        hints = [_closest_option(name, _types(Config)) for name in unknown]
        raise ConfigError(
            f"config {path}: unknown {keys} {', '.join(unknown)}", " ".join(filter(None, hints))
        )
    try:
        config: Config = _build(Config, tree, "")
    except ConfigError as error:
        raise ConfigError(f"config {path}: {error.message}", error.hint) from None
    return config


def find(name: str) -> Path:
    """Return the path of a config file, given its path or the name of a built-in config
    ("multi30k").

    Raises:
        ConfigError: the file does not exist.
    """
    path = Path(name)
    if path.is_file():
        return path
    builtin = builtin_configs()
    if name not in builtin:
        problem = "is a directory, not a config file" if path.is_dir() else "does not exist"
        raise ConfigError(f"config {name} {problem}", suggest(name, builtin) if builtin else "")
    return builtin[name]


def builtin_configs() -> dict[str, Path]:
    """Return the files of the built-in configs by name."""
    directory = Path(__file__).parents[2] / "configs"  # in a wheel
    if not directory.is_dir():
        directory = Path(__file__).parents[3] / "configs"
    return {file.stem: file for file in sorted(directory.glob("*.yaml"))}


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML mapping.

    Raises:
        ConfigError: the file cannot be read, is not YAML, or is not a mapping.
    """
    try:
        tree = untrusted_files.read_yaml(path)
    except OSError as error:
        raise ConfigError(f"cannot read config {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"config {path} is not UTF-8 (byte {error.start + 1})") from None
    except ValueError as error:
        separator = ", " if str(error).startswith("line ") else ": "
        raise ConfigError(f"config {path}{separator}{error}") from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(
            f"config {path} is not a mapping", "write sections such as data: and model:"
        )
    return tree


@_hint_at_options()
def override(config: Config, text: str) -> Config:
    """Apply one `section.key=value`. The value is parsed as YAML unless the option is a string.

    `section.key+=value` appends to a list. `plugins=value` imports them.
    """
    left, equals, raw = (part.strip() for part in text.partition("="))
    if not equals:
        raise ConfigError(f"cannot read --set {text}", "write --set train.steps=1000")
    name = left.removesuffix("+").rstrip()
    if name not in OPTION_TYPES:
        raise ConfigError(f"unknown key {name}", _closest_option(name))
    expected = OPTION_TYPES[name]
    is_addition = left != name
    if is_addition and typing.get_origin(expected) is not tuple:
        raise ConfigError(f"{name} is not a list", f"write --set {name}={raw}")
    section, _, key = name.rpartition(".")
    parent: Any = getattr(config, section) if section else config
    new_value = _value(expected, _parse_value(expected, raw, text), name)
    if name == "plugins":
        plugins.load(new_value)
    if is_addition:
        new_value = (*getattr(parent, key), *new_value)
    changed: Any = dataclasses.replace(parent, **{key: new_value})
    return dataclasses.replace(config, **{section: changed}) if section else changed


def _parse_value(expected: Any, raw: str, text: str) -> Any:
    if expected is str:
        return raw
    if typing.get_origin(expected) is tuple and not raw.startswith("["):
        return [raw] if raw else []
    try:
        return untrusted_files.parse_yaml(raw)
    except ValueError:
        raise ConfigError(f"cannot read the value of --set {text}") from None


def override_names(overrides: Iterable[str]) -> set[str]:
    """Return the full names of the options that `section.key=value` overrides set."""
    return {text.partition("=")[0].rstrip("+ ").strip() for text in overrides}


def keys_in_file(path: Path) -> set[str]:
    """Return the full names of the options that a config file contains."""
    keys = set()
    for name, value in read_yaml(path).items():
        if isinstance(value, dict):
            keys |= {f"{name}.{key}" for key in value}
        else:
            keys.add(name)
    return keys


def options() -> list[tuple[str, str, str]]:
    """Return the full name, default and documentation of all options, read from the source of the
    dataclasses."""
    rows = []
    for name in OPTION_TYPES:
        section, _, key = name.rpartition(".")
        parent = getattr(Config(), section) if section else Config()
        default = yaml.safe_dump(getattr(parent, key), default_flow_style=True).split("\n")[0]
        rows.append((name, default, _field_docs(parent)[key]))
    return rows


@functools.cache
def _field_docs(section: Any) -> dict[str, str]:
    """Return the string literal below each field of a dataclass."""
    body = ast.parse(inspect.getsource(type(section))).body[0]
    assert isinstance(body, ast.ClassDef)
    docs = {}
    for field, doc in itertools.pairwise(body.body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(doc, ast.Expr)
        ):
            text = str(ast.literal_eval(doc.value))
            docs[field.target.id] = " ".join(text.split())
    return docs


def dump(config: Config) -> str:
    """Return a config as YAML. `load` reads it back as an equal config."""
    return yaml.safe_dump(
        dataclasses.asdict(config), sort_keys=False, allow_unicode=True, width=120
    )


def changed_options(name: str, saved: object, current: object) -> list[str]:
    """Return the names of the options with other values: those of a section, or the option `name`
    itself."""
    if saved == current:
        return []
    if not dataclasses.is_dataclass(saved):
        return [name]
    options = [each.name for each in dataclasses.fields(saved)]
    changed = [each for each in options if getattr(saved, each) != getattr(current, each)]
    return [f"{name}.{each}" for each in changed]


def _unknown_keys(kind: type, tree: dict[str, Any], path: str) -> Iterator[str]:
    """Yield the full names of the keys of a config file that are not options."""
    hints = _types(kind)
    for key, value in tree.items():
        full = f"{path}{key}"
        if key not in hints and full not in REMOVED:
            yield full
        elif isinstance(value, dict) and dataclasses.is_dataclass(hints[key]):
            yield from _unknown_keys(typing.cast(type, hints[key]), value, f"{full}.")


def _closest_option(name: str, sections: Iterable[str] = ()) -> str:
    """Return the hint for an unknown key, which may be an option of another section, without its
    section, or with the name that other toolkits give it."""
    section, _, key = name.rpartition(".")
    options = OTHER_NAMES | {option.rpartition(".")[2]: option for option in OPTION_TYPES}
    if not section:
        options |= {each: each for each in sections}
    matches = difflib.get_close_matches(key, options, n=1)
    return f"did you mean '{options[matches[0]]}'?" if matches else ""


def _build(kind: type, tree: dict[str, Any], path: str) -> Any:
    hints = _types(kind)
    values = {}
    for key, value in tree.items():
        full = f"{path}{key}"
        if full in REMOVED:
            continue
        if dataclasses.is_dataclass(hints[key]):
            if value is not None and not isinstance(value, dict):
                raise ConfigError(f"{full}: expected a section, got {value!r}")
            values[key] = _build(typing.cast(type, hints[key]), value or {}, f"{full}.")
        else:
            values[key] = _value(hints[key], value, full)
    return kind(**values)


def _value(expected: Any, value: Any, path: str) -> Any:
    """Check one value against its annotation. Lists become tuples; 1e-4, a string in YAML 1.1,
    becomes a float."""
    if expected is float and isinstance(value, str | int) and not isinstance(value, bool):
        with contextlib.suppress(ValueError):
            # An integer that is too large becomes infinite, which `check` rejects.
            return float(str(value))
    if typing.get_origin(expected) is tuple and isinstance(value, list):
        value = tuple(value)
    if not accepts(expected, value):
        hint = ""
        if isinstance(value, bool) and accepts(expected, "no"):
            hint = "quote it: YAML parses yes, no, on and off as booleans"
        raise ConfigError(f"{path}: expected {describe_type(expected)}, got {value!r}", hint)
    return value


@_hint_at_options()
def check(config: Config) -> None:
    """Check ranges, and values that depend on each other.

    Spec strings are checked by `nmt.training.session.check_specs`.

    Raises:
        ConfigError: a value is out of range; the error names the first one.
    """
    _check_ranges(config, "")
    for name in ("data", "tokenizer", "model", "train"):
        _check_ranges(getattr(config, name), f"{name}.")
    _choice("tokenizer.model_type", config.tokenizer.model_type, ("unigram", "bpe"))
    _choice("model.norm_position", config.model.norm_position, ("post", "pre"))
    _choice("train.all_reduce_precision", config.train.all_reduce_precision, ("fp32", "bf16"))
    _choice("train.weight_rounding", config.train.weight_rounding, ("", "int8", "firefox"))
    _check_relations(config)


def _check_ranges(section: Any, prefix: str) -> None:
    annotations = typing.get_type_hints(type(section), include_extras=True)
    check_ranges(vars(section), annotations, prefix)


def _check_relations(config: Config) -> None:
    model = config.model
    train = config.train
    if model.dim % model.heads:
        raise ConfigError(
            f"model.dim ({model.dim}) must be a multiple of model.heads ({model.heads})"
        )
    if model.dim % 2:
        raise ConfigError(
            f"model.dim ({model.dim}) must be even: position encodings pair sines and cosines"
        )
    if train.max_length > train.batch_tokens:
        raise ConfigError(
            f"train.max_length ({train.max_length}) must not exceed train.batch_tokens"
            f" ({train.batch_tokens})",
            "the longest pair must fit into a batch",
        )
    if train.average_last > train.keep_last:
        raise ConfigError(
            f"train.average_last ({train.average_last}) must not exceed train.keep_last"
            f" ({train.keep_last})",
            "only checkpoints that are kept can be averaged; increase train.keep_last",
        )
    _check_data(config.data)
    if config.data.replay and not train.replay_share:
        raise ConfigError(
            "data.replay is set, but train.replay_share is 0",
            "set train.replay_share=0.5, for example",
        )
    if not config.data.replay and train.replay_share not in (0, TrainConfig.replay_share):
        raise ConfigError(
            f"train.replay_share is {train.replay_share}, but data.replay names no corpus",
            "set data.replay, or leave out train.replay_share",
        )
    if train.teacher and not train.distill_weight:
        raise ConfigError(
            "train.teacher is set, but train.distill_weight is 0", "set train.distill_weight=0.5"
        )
    for name in ("distill_weight", "distill_top_k"):
        if not train.teacher and getattr(train, name) != getattr(TrainConfig, name):
            raise ConfigError(
                f"train.{name} is set, but train.teacher names no model",
                "set train.teacher=runs/NAME",
            )


def _check_data(data: DataConfig) -> None:
    if not data.train:
        raise ConfigError("data.train names no corpus", "see nmt data list")
    for side, code in (("source", data.src), ("target", data.tgt)):
        if not LANGUAGE_CODE.fullmatch(code):
            raise ConfigError(
                f"{side} language '{code}' is not a language code",
                "use letters, digits, hyphens and underscores, as in en, pt-BR or zh_Hans",
            )
    if data.src == data.tgt:
        raise ConfigError(f"data.src and data.tgt are both '{data.src}'")


def check_unused(config: Config, overrides: Sequence[str], *, is_fine_tuned: bool = False) -> None:
    """Check that overrides have an effect.

    Args:
        config: the config with the overrides.
        overrides: `KEY=VALUE` strings of the user.
        is_fine_tuned: whether the tokenizer is that of the model to fine-tune.

    Raises:
        ConfigError: an option has no effect.
    """
    names = override_names(overrides)
    data = config.data
    unused = {}
    tokenizer_options = {name for name in names if name.startswith("tokenizer.")}
    if is_fine_tuned and config.tokenizer.model:
        reason = "--init-from keeps the tokenizer of the model"
        unused = dict.fromkeys(tokenizer_options, reason)
    elif config.tokenizer.model:
        reason = "tokenizer.model is trained already"
        unused = dict.fromkeys(tokenizer_options - {"tokenizer.model"}, reason)
    if data.temperature != 1 and len(data.train) == 1 and len(data.replay) < 2:
        unused["data.temperature"] = "there is a single corpus"
    if data.general_test and not config.train.init_from:
        unused["data.general_test"] = "there is no start model to compare with"
    for name in sorted(names & unused.keys()):
        raise ConfigError(f"{name} has no effect: {unused[name]}", f"leave out {name}")


def _choice(path: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ConfigError(f"{path}: unknown value '{value}'", suggest(value, choices))
