"""Strict YAML and `--set a.b=c` to a `Config` and back. Nothing that is written is ever ignored."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from nmt.config import MAX_PIECES, Config
from nmt.errors import ConfigError, suggest
from nmt.registry import accepts

MAX_LAYERS = 1000
MAX_WIDTH = 65_536
SECTIONS = {f.name: typing.get_type_hints(Config)[f.name] for f in dataclasses.fields(Config)}


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses a key written twice, of which YAML would silently keep the last."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            raise ConfigError(f"line {key_node.start_mark.line + 1}: a key must be a word")
        key = loader.construct_object(key_node)
        if key in seen:
            raise ConfigError(f"line {key_node.start_mark.line + 1}: key '{key}' is given twice")
        seen.add(key)
    return loader.construct_mapping(node)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def load(path: Path | None, overrides: Sequence[str] = ()) -> Config:
    """Read a config file (None: the defaults) and apply `a.b=c` overrides in order.

    Raises:
        ConfigError: file missing or not YAML, unknown key, wrong type, value out of range.
    """
    tree: dict[str, Any] = read_yaml(path) if path else {}
    config: Config = _build(Config, tree, "")
    for text in overrides:
        config = override(config, text)
    check(config)
    return config


def find(name: str) -> Path:
    """Return the config file a user means: a path, or the name of one that nmt ships ("multi30k").

    Raises:
        ConfigError: there is no such file.
    """
    path = Path(name)
    if path.is_file():
        return path
    shipped = {file.stem: file for file in sorted(_shipped().glob("*.yaml"))}
    if path.is_dir() or name not in shipped:
        what = "is a folder, not a config file" if path.is_dir() else "does not exist"
        raise ConfigError(f"config {name} {what}", suggest(name, shipped) if shipped else "")
    return shipped[name]


def _shipped() -> Path:
    inside = Path(__file__).parents[1] / "configs"  # in a wheel
    return inside if inside.is_dir() else Path(__file__).parents[2] / "configs"


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML mapping.

    Raises:
        ConfigError: the file cannot be read, is not YAML, or is not a mapping.
    """
    try:
        tree = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except OSError as error:
        raise ConfigError(f"cannot read config {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"config {path} is not UTF-8 (byte {error.start + 1})") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date such as 2001-13-01
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"config {path}{where}: {getattr(error, 'problem', None) or 'not valid YAML'}") from None
    except ConfigError as error:
        raise ConfigError(f"config {path}, {error.message}", error.hint) from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(f"config {path} is not a mapping", "write sections such as data: and model:")
    return tree


def override(config: Config, text: str) -> Config:
    """Apply one `section.key=value`; the value is read as YAML unless the option holds text."""
    path, equals, raw = text.partition("=")
    path = path.strip()
    if not equals:
        raise ConfigError(f"cannot read --set {text}", "write --set train.steps=1000")
    section, dot, key = path.rpartition(".")
    holder: Any = getattr(config, section, None) if dot and section in SECTIONS else config if not dot else None
    hints = typing.get_type_hints(type(holder)) if dataclasses.is_dataclass(holder) else {}
    if key not in hints or dataclasses.is_dataclass(hints[key]):
        raise ConfigError(f"unknown key {path}", suggest(path, keys()))
    if hints[key] is str:
        value: Any = raw.strip()
    elif typing.get_origin(hints[key]) is tuple and not raw.strip().startswith("["):
        value = [raw.strip()] if raw.strip() else []
    else:
        try:
            value = yaml.load(raw, Loader=_Loader)
        except (yaml.YAMLError, ValueError, RecursionError):
            raise ConfigError(f"cannot read the value of --set {text}") from None
    changed = dataclasses.replace(holder, **{key: _value(hints[key], value, path)})
    return dataclasses.replace(config, **{section: changed}) if dot else typing.cast(Config, changed)


def keys() -> list[str]:
    """List every option by its full name ("train.steps")."""
    names = []
    for name, kind in SECTIONS.items():
        if dataclasses.is_dataclass(kind):
            names += [f"{name}.{f.name}" for f in dataclasses.fields(kind)]
        else:
            names.append(name)
    return names


def options() -> list[tuple[str, str, str]]:
    """List every option's full name, default and explanation, read from the dataclasses' source."""
    found = []
    for holder, prefix in [(Config, ""), *((kind, f"{name}.") for name, kind in SECTIONS.items())]:
        if not dataclasses.is_dataclass(holder):
            continue
        texts = _field_texts(typing.cast(type, holder))
        defaults = _plain(dataclasses.asdict(typing.cast(type, holder)()))
        for name, text in texts.items():
            found.append(
                (f"{prefix}{name}", yaml.safe_dump(defaults[name], default_flow_style=True).split("\n")[0], text)
            )
    return found


def _field_texts(kind: type) -> dict[str, str]:
    """Map each field to the string literal that stands under it."""
    body = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(body, ast.ClassDef)
    texts = {}
    for field, text in itertools.pairwise(body.body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            texts[field.target.id] = inspect.cleandoc(str(ast.literal_eval(text.value)))
    return texts


def dump(config: Config) -> str:
    """Write a config as YAML that `load` reads back to an equal one."""
    tree = dataclasses.asdict(config)
    return yaml.safe_dump(_plain(tree), sort_keys=False, allow_unicode=True, width=120)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _build(kind: type, tree: dict[str, Any], path: str) -> Any:
    hints = typing.get_type_hints(kind)
    values = {}
    for key, value in tree.items():
        full = f"{path}{key}"
        if key not in hints:
            raise ConfigError(f"unknown key {full}", suggest(str(key), hints))
        if dataclasses.is_dataclass(hints[key]):
            if value is not None and not isinstance(value, dict):
                raise ConfigError(f"{full}: expected a section, got {value!r}")
            values[key] = _build(typing.cast(type, hints[key]), value or {}, f"{full}.")
        else:
            values[key] = _value(hints[key], value, full)
    return kind(**values)


def _value(expected: Any, value: Any, path: str) -> Any:
    """Check one value against its annotation; lists become tuples, and 1e-4 (text in YAML 1.1) a number."""
    if expected is float and isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            pass
    if expected is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if typing.get_origin(expected) is tuple and isinstance(value, list):
        value = tuple(value)
    if not accepts(expected, value):
        hint = "quote it: YAML reads yes, no, on and off as booleans" if isinstance(value, bool) else ""
        raise ConfigError(f"{path}: expected {_name(expected)}, got {value!r}", hint)
    return value


def _name(expected: Any) -> str:
    if typing.get_origin(expected) is tuple:
        return f"a list of {_name(typing.get_args(expected)[0])}"
    return expected.__name__ if isinstance(expected, type) and not isinstance(expected, types.GenericAlias) else "value"


def check(config: Config) -> None:
    """Check what a type cannot say: ranges, and sizes that must fit each other.

    Spec strings are checked by the families that own them, in `nmt.train.check_specs`.

    Raises:
        ConfigError: the first value out of range.
    """
    model, train = config.model, config.train
    at_least_one = {
        "tokenizer.vocab_size": config.tokenizer.vocab_size,
        "tokenizer.max_training_sentences": config.tokenizer.max_training_sentences,
        "model.dim": model.dim,
        "model.heads": model.heads,
        "model.ffn_dim": model.ffn_dim,
        "model.encoder_layers": model.encoder_layers,
        "model.decoder_layers": model.decoder_layers,
        "model.layer_sharing": model.layer_sharing,
        "train.steps": train.steps,
        "train.batch_tokens": train.batch_tokens,
        "train.grad_accumulation": train.grad_accumulation,
        "train.max_length": train.max_length,
        "train.valid_every": train.valid_every,
        "train.keep_last": train.keep_last,
        "train.keep_best": train.keep_best,
        "train.log_every": train.log_every,
    }
    for path, value in at_least_one.items():
        if value < 1:
            raise ConfigError(f"{path} must be at least 1, got {value}")
    if config.seed >= 2**63:
        raise ConfigError(f"seed must be below 2^63, got {config.seed}")
    for path, value, most in (
        ("tokenizer.vocab_size", config.tokenizer.vocab_size, MAX_PIECES),
        ("model.encoder_layers", model.encoder_layers, MAX_LAYERS),
        ("model.decoder_layers", model.decoder_layers, MAX_LAYERS),
        ("model.dim", model.dim, MAX_WIDTH),
        ("model.ffn_dim", model.ffn_dim, MAX_WIDTH),
    ):
        if value > most:
            raise ConfigError(f"{path} must be at most {most}, got {value}")
    not_negative: dict[str, float] = {
        "seed": config.seed,
        "model.attention_window": model.attention_window,
        "model.kv_heads": model.kv_heads,
        "train.patience": train.patience,
        "train.average_last": train.average_last,
        "train.num_samples": train.num_samples,
        "train.valid_pairs": train.valid_pairs,
        "train.clip_norm": train.clip_norm,
        "train.weight_decay": train.weight_decay,
    }
    for path, number in not_negative.items():
        if not 0 <= number < float("inf"):
            raise ConfigError(f"{path} must be 0 or more, got {number}")
    below_one = {
        "model.dropout": model.dropout,
        "model.attention_dropout": model.attention_dropout,
        "model.activation_dropout": model.activation_dropout,
        "train.label_smoothing": train.label_smoothing,
        "train.ema": train.ema,
        "train.beta1": train.beta1,
        "train.beta2": train.beta2,
    }
    for path, number in below_one.items():
        if not 0 <= number < 1:
            raise ConfigError(f"{path} must be at least 0 and below 1, got {number}")
    if not 0 < train.eps < 1:
        raise ConfigError(f"train.eps must be above 0 and below 1, got {train.eps}")
    if model.dim % model.heads:
        raise ConfigError(f"model.dim ({model.dim}) must be a multiple of model.heads ({model.heads})")
    if model.dim % 2:
        raise ConfigError(f"model.dim ({model.dim}) must be even: positions come in sine and cosine pairs")
    if train.max_length > train.batch_tokens:
        raise ConfigError(
            f"train.max_length ({train.max_length}) must not be above train.batch_tokens ({train.batch_tokens})",
            "a batch must hold at least the longest pair",
        )
    if train.average_last > train.keep_last:
        raise ConfigError(
            f"train.average_last ({train.average_last}) must not be above train.keep_last ({train.keep_last})",
            "what is averaged must have been kept",
        )
    _choice("tokenizer.model_type", config.tokenizer.model_type, ("unigram", "bpe"))
    _choice("model.norm_position", model.norm_position, ("post", "pre"))
    _choice("train.best_metric", train.best_metric, ("bleu", "chrf", "loss"))
    if not config.data.train:
        raise ConfigError("data.train names no corpus", "see nmt data list")
    if config.data.src == config.data.tgt:
        raise ConfigError(f"data.src and data.tgt are both '{config.data.src}'")


def _choice(path: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ConfigError(f"{path}: unknown value '{value}'", suggest(value, choices))
