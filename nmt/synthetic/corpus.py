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
from nmt.data.sources.files import Files, pair_format
from nmt.data.tables import FORMATS
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
    known = []
    for spec in _known_corpora(teacher):
        _, options = parse_corpus(spec)
        if not options.tag:  # the sources of tagged corpora are synthetic
            known.append(spec)
    is_reused = _has_own_config(teacher, known)
    corpora = [with_columns(spec, data) for spec in known or ["CORPUS"]]
    corpora.append(_spec(directory, build_command, tag=tag))
    changes = [f"data.src={data.tgt}", f"data.tgt={data.src}"]
    changes.append(f"data.train={_yaml_list(corpora)}")
    held_out = {"valid": data.valid, "test": data.test}
    for key, spec in held_out.items():
        if not known or not spec:
            continue
        new_spec = with_columns(spec, data)
        if not is_reused or spec != new_spec:
            changes.append(f"data.{key}={new_spec}")
    clean = list(map(_reversed_cleaning, data.clean))
    if is_reused and clean != list(data.clean):
        changes.append(f"data.clean={_yaml_list(clean)}")
    return _train_command(teacher, directory, changes, is_reused=is_reused)


def _reversed_cleaning(spec: str) -> str:
    """Return a cleaning step for the other direction."""
    name, options = parse(spec)
    if name == "script":
        src = options.get("tgt", "latin")
        tgt = options.get("src", "latin")
        return format_spec(name, options | {"src": src, "tgt": tgt})
    if name == "dedup":
        other_sides = {"source": "target", "target": "source"}
        side = other_sides.get(options.get("by", ""))
        if side:
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
    data = teacher.config.data
    known = _known_corpora(teacher)
    is_reused = _has_own_config(teacher, known)
    held_out = {}
    for key in ("valid", "test"):
        own_spec = known and getattr(data, key)
        held_out[key] = own_spec or _with_split([*specs, *known], key, data)
    changes = []
    if not is_reused:
        changes += [f"data.src={data.src}", f"data.tgt={data.tgt}"]
    corpus = _spec(directory, build_command, hold_out=not held_out["valid"])
    changes.append(f"data.train={corpus}")
    for key, spec in held_out.items():
        is_kept = is_reused and getattr(data, key)
        if spec and not is_kept:
            changes.append(f"data.{key}={spec}")
    encoder_layers = max(6, teacher.config.model.encoder_layers)
    changes.append(f"model.encoder_layers={encoder_layers}")
    changes.append("model.decoder_layers=1")
    return _train_command(teacher, directory, changes, is_reused=is_reused)


def _has_own_config(teacher: ModelFiles, known: Sequence[str]) -> bool:
    """Return whether the config of the teacher suits a new model: the data is known, and it was not
    fine-tuned."""
    return bool(known) and not teacher.config.train.init_from


def with_columns(spec: str, data: DataConfig) -> str:
    """Return the spec for the other direction: with the languages of columns and of files without
    suffixes, whose default is the direction."""
    name, options = parse(spec)
    if name not in ("files", "datasets"):
        return spec
    if "src" in options or "tgt" in options:
        target = options.pop("tgt", data.tgt)
        source = target[0] if isinstance(target, tuple | list) else target  # without references
        swapped = {"src": source, "tgt": options.pop("src", data.src)}
        return format_spec(name, options | swapped)
    texts = [options[split] for split in SPLITS if split in options]
    has_columns = name == "datasets" or any(
        not isinstance(text, str) or pair_format(Path(text)) in FORMATS for text in texts
    )
    return format_spec(name, {"columns": (data.src, data.tgt)} | options) if has_columns else spec


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
            corpus = get_corpus(spec)
            if isinstance(corpus, Files):  # others can be downloaded
                corpus.open("train", data.src, data.tgt)
    except NMTError:
        return []
    return [*data.train]


def _train_command(
    teacher: ModelFiles, directory: Path, changes: Sequence[str], *, is_reused: bool
) -> str:
    config = OTHER_CONFIG
    changes = list(changes)
    if is_reused:
        config = str(teacher.run / "config.yaml")
        changes += _resets(teacher)
    words = ["nmt", "train", "--config", config, "--run", f"runs/{directory.name}"]
    for change in changes:
        words += ("--set", change)
    return " ".join(map(_quote, words))


def _yaml_list(specs: Sequence[str]) -> str:
    quoted = []
    for spec in specs:
        quoted.append(spec if spec.isidentifier() else json.dumps(spec, ensure_ascii=False))
    return f"[{', '.join(quoted)}]"


def _quote(word: str) -> str:
    """Quote a word for a shell with double quotes, because spec strings contain single quotes."""
    return word if _SAFE.fullmatch(word) else '"' + re.sub(r'([\\"$`])', r"\\\1", word) + '"'
