"""The config of a training run: that of a file, of the run to resume, or of the model to fine-tune
with other data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from nmt.core import plugins
from nmt.core.config import FINE_TUNING, Config, config_io
from nmt.core.errors import UsageError


def load(
    name: str, resumed_run: Path | None, init_from: Path | None, overrides: list[str]
) -> Config:
    """Load the config named on the command line, or that of the run to resume, and apply the
    overrides."""
    if resumed_run and not name and (path := resumed_run / "config.yaml").is_file():
        if not path.read_bytes().strip():
            raise UsageError(f"{path} is empty", "restore it from a backup")
        config = config_io.load(path, overrides)
        plugins.load_for(resumed_run, config.plugins)
        return config
    if init_from:
        return _fine_tuning_config(config_io.find(name or FINE_TUNING), init_from, overrides)
    if name == FINE_TUNING:
        raise UsageError(
            f"--config {name} needs --init-from",
            "name the model to fine-tune: --init-from runs/NAME",
        )
    return config_io.load_named(name or "quickstart", overrides)


def load_checked(name: str, overrides: list[str]) -> Config:
    """Load the config of a new model, and check all of it, so that errors show before any work is
    done.

    Raises:
        ConfigError: see `nmt.core.config.config_io.load_named`, and `check_unused` there.
        UsageError: see `nmt.training.session.check_specs`.
    """
    from nmt.training.session import check_specs  # imports torch

    config = config_io.load_named(name or "quickstart", overrides)
    config_io.check_unused(config, overrides)
    check_specs(config)
    return config


def _fine_tuning_config(path: Path, init_from: Path, overrides: list[str]) -> Config:
    """Load a config, and take the languages, the model, the tokenizer and placeholders from the run
    to start from.

    `search` is that of the run, too, and `train.max_length` at least that of the run, unless the
    config file has them.
    """
    from nmt.models import discovery
    from nmt.text.tokenizers import tokenizer_file

    run, _ = discovery.resolve_model(init_from)
    config = config_io.read(path)
    start = config_io.load(run / "config.yaml")
    in_file = config_io.keys_in_file(path)
    set_keys = in_file | config_io.override_names(overrides)
    if "data.train" not in set_keys:
        raise UsageError(
            f"there is no data to fine-tune {init_from} on",
            "name it: --set \"data.train=files(train='my/corpus')\"",
        )
    plugins.load(config.plugins)
    config = replace(
        start,
        seed=config.seed,
        plugins=tuple(dict.fromkeys((*start.plugins, *config.plugins))),
        search=config.search if "search" in in_file else start.search,
        data=replace(
            config.data,
            src=start.data.src,
            tgt=start.data.tgt,
            placeholders=start.data.placeholders,
        ),
        tokenizer=replace(start.tokenizer, model=str(tokenizer_file(run))),
        train=replace(config.train, init_from=str(init_from)),
    )
    for override in overrides:
        config = config_io.override(config, override)
    if "train.max_length" not in set_keys:
        config = _with_max_length(config, start)
    _check_direction(config, start, init_from)
    config_io.check(config)
    return config


def _check_direction(config: Config, start: Config, init_from: Path) -> None:
    if (config.data.src, config.data.tgt) == (start.data.tgt, start.data.src):
        raise UsageError(
            f"{init_from} translates from {start.data.src} to {start.data.tgt}, not to"
            f" {start.data.src}",
            "fine-tune a model of the other direction, or leave out data.src and data.tgt",
        )


def _with_max_length(config: Config, start: Config) -> Config:
    """Allow sentences as long as in the training of the start model, as far as they fit into a
    batch and the model."""
    from nmt.model.build import max_positions  # imports torch

    train = config.train
    longest = max(start.train.max_length, train.max_length)
    longest = min(longest, train.batch_tokens, max_positions(start.model) or longest)
    return replace(config, train=replace(train, max_length=longest))
