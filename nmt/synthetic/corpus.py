"""The finished corpus: its record, and the command that trains on it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from nmt.core.config import DataConfig, TrainConfig
from nmt.core.errors import NMTError
from nmt.core.registry import format_spec, parse
from nmt.data.sources import get_corpus, open_split, parse_corpus, without_corpus_options
from nmt.data.sources.corpus import SPLITS
from nmt.data.sources.files import pair_format
from nmt.runs import run_report
from nmt.runs.model_files import ModelFiles

OTHER_CONFIG = "tatoeba"
"""Config of a new model if that of the teacher is unsuitable."""
_SAFE = re.compile(r"[\w@%+=:,./-]+")


def back_translation_command(
    teacher: ModelFiles, directory: Path, build_command: str, *, tag: bool
) -> str:
    """Return the command that trains the other direction on the teacher's data and on its
    translations."""
    data = teacher.config.data
    # Their sources are synthetic.
    known = [spec for spec in _known_corpora(teacher) if not parse_corpus(spec)[1].tag]
    is_reused = _has_own_config(teacher, known)
    corpora = [
        *(_with_columns(spec, data) for spec in known or ["CORPUS"]),
        _spec(directory, build_command, tag=tag),
    ]
    changes = [f"data.src={data.tgt}", f"data.tgt={data.src}", f"data.train={_yaml_list(corpora)}"]
    for key, spec in {"valid": data.valid, "test": data.test}.items() if known else ():
        if spec and not (is_reused and spec == _with_columns(spec, data)):
            changes.append(f"data.{key}={_with_columns(spec, data)}")
    if is_reused and (clean := list(map(_reversed_cleaning, data.clean))) != [*data.clean]:
        changes.append(f"data.clean={_yaml_list(clean)}")
    return _train_command(teacher, directory, changes, is_reused=is_reused)


def _reversed_cleaning(spec: str) -> str:
    """Return a cleaning step for the other direction."""
    name, options = parse(spec)
    if name == "script":
        return format_spec(
            name, options | {"src": options.get("tgt", "latin"), "tgt": options.get("src", "latin")}
        )
    if name == "dedup" and (
        side := {"source": "target", "target": "source"}.get(options.get("by", ""))
    ):
        return format_spec(name, {"by": side})
    return spec


def distillation_command(
    teacher: ModelFiles, directory: Path, build_command: str, specs: Sequence[str] = ()
) -> str:
    """Return the command that trains a student with a deep encoder and a decoder of one layer.

    Args:
        teacher: the first teacher, whose config is that of the student if it trained a model from
            random weights.
        directory: directory of the corpus.
        build_command: command that creates the corpus.
        specs: corpora that were translated instead of the data of the teacher.
    """
    known, data = _known_corpora(teacher), teacher.config.data
    is_reused = _has_own_config(teacher, known)
    changes = [] if is_reused else [f"data.src={data.src}", f"data.tgt={data.tgt}"]
    held_out = {
        key: (known and getattr(data, key)) or _with_split([*specs, *known], key, data)
        for key in ("valid", "test")
    }
    changes.append(f"data.train={_spec(directory, build_command, hold_out=not held_out['valid'])}")
    changes += [
        f"data.{key}={spec}"
        for key, spec in held_out.items()
        if spec and not (is_reused and getattr(data, key))
    ]
    changes += [
        f"model.encoder_layers={max(6, teacher.config.model.encoder_layers)}",
        "model.decoder_layers=1",
    ]
    return _train_command(teacher, directory, changes, is_reused=is_reused)


def _has_own_config(teacher: ModelFiles, known: Sequence[str]) -> bool:
    """Return whether the config of the teacher suits a new model: the data is known, and it was not
    fine-tuned."""
    return bool(known) and not teacher.config.train.init_from


def _with_columns(spec: str, data: DataConfig) -> str:
    """Return the spec with the languages of columns and of files without suffixes, whose default is
    the direction."""
    name, options = parse(spec)
    texts = [options[split] for split in SPLITS if split in options]
    if name == "files" and any(
        not isinstance(text, str) or pair_format(Path(text)) == "tsv" for text in texts
    ):
        return format_spec(name, {"columns": (data.src, data.tgt)} | options)
    return spec


def _with_split(specs: Sequence[str], split: str, data: DataConfig) -> str:
    """Return the first corpus that has a split, or an empty string."""
    for spec in specs:
        with suppress(NMTError):
            if get_corpus(spec).is_installed:  # opening another one would download it
                open_split(spec, split, data.src, data.tgt)
                return without_corpus_options(spec)
    return ""


def _resets(teacher: ModelFiles) -> list[str]:
    """Return the options that a new model does not take from the config of a distilled teacher."""
    config, defaults = teacher.config.train, TrainConfig()
    names = ("teacher", "distill_weight", "distill_top_k")
    changed = [name for name in names if getattr(config, name) != getattr(defaults, name)]
    resets = [f"train.{name}={getattr(defaults, name)}" for name in changed]
    return [*resets, "tokenizer.model="] if teacher.config.tokenizer.model else resets


def _spec(directory: Path, build_command: str, *, tag: bool = False, hold_out: bool = False) -> str:
    options: dict[str, Any] = {"train": str(directory / "train")}
    options |= {} if hold_out else {"hold_out": False}
    options |= {"tag": True} if tag else {}
    return format_spec("files", options | {"build_command": build_command})


def _known_corpora(teacher: ModelFiles) -> list[str]:
    """Return the training corpora of the teacher; an empty list if they are unknown or not on
    disk."""
    data = teacher.config.data
    if run_report.is_imported(teacher.run):
        return []
    try:
        for spec in data.train:
            if (corpus := get_corpus(spec)).name == "files":  # others can be downloaded
                corpus.open("train", data.src, data.tgt)
    except NMTError:
        return []
    return [*data.train]


def _train_command(
    teacher: ModelFiles, directory: Path, changes: Sequence[str], *, is_reused: bool
) -> str:
    config = str(teacher.run / "config.yaml") if is_reused else OTHER_CONFIG
    changes = [*changes, *(_resets(teacher) if is_reused else ())]
    words = ["nmt", "train", "--config", config, "--run", f"runs/{directory.name}"]
    return " ".join(
        map(_quote, [*words, *(word for change in changes for word in ("--set", change))])
    )


def _yaml_list(specs: Sequence[str]) -> str:
    quoted = (
        spec if spec.isidentifier() else json.dumps(spec, ensure_ascii=False) for spec in specs
    )
    return f"[{', '.join(quoted)}]"


def _quote(word: str) -> str:
    """Quote a word for a shell with double quotes, because spec strings contain single quotes."""
    return word if _SAFE.fullmatch(word) else '"' + re.sub(r'([\\"$`])', r"\\\1", word) + '"'
