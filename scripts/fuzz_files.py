"""Fuzz the readers of models: mutate valid directories, load them, and count what happens.

    python scripts/fuzz_files.py --cases 2000 --seed 1

Each case runs in a child process. Only NMTErrors may be raised; no case may crash, take more than
10 seconds or more than 1.5 GB of memory, or load a model whose files differ from their checksums.
Prints a table and each violation.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import socket
import stat
import struct
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from nmt.core.config import Config, config_io
from nmt.core.errors import NMTError
from nmt.core.paths import sha256
from nmt.model import marian_names
from nmt.model.build import build_model
from nmt.models import discovery
from nmt.models.importers import import_model
from nmt.models.marian_layout import matrices, norms
from nmt.runs import checkpoint, model_card, run_report
from nmt.runs.checkpoint import META, WEIGHTS, Progress
from nmt.text.tokenizer import Tokenizer
from nmt.text.tokenizer import train as train_tokenizer
from nmt.text.tokenizers import tokenizer_file
from nmt.translation.confidence import FEATURE_SIGNS, Calibration, Feature
from nmt.translation.translator import Translator

MAX_SECONDS, MAX_MEGABYTES = 10, 1500
VIOLATIONS = ("traceback", "crash", "timeout", "memory", "changed")
SYLLABLES = "ba be bi bo bu da de di do du ga ge gi go gu".split()
SIZES = [
    "model.dim=16",
    "model.heads=2",
    "model.ffn_dim=32",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
]
STEP = "step-000002"
VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1,
    2**31,
    2**63,
    10**12,
    10**30,
    -1.5,
    1e308,
    "",
    "x",
    "\x1b[31mred\n",
    "\ud800",
    "x" * 100_000,
    "../../etc",
    [],
    {},
    [[]],
    {"a": [None]},
    [0] * 1000,
)
RAW = (
    "NaN",
    "Infinity",
    "1e999",
    "-1e999",
    "9" * 5000,
    "[" * 100_000,
    '{"a":' * 100_000,
    '"\\ud800"',
    "[" * 60 + "]" * 60,
)
"""Values that are written into a document as they are."""
WORDS = (0, 1, 2**16, 2**31 - 1, 2**31, 2**32 - 1)
"""Numbers of 32 bits that replace those of a binary file."""

ARRAY_SHAPES = ((0,), (1,), (2, 3), (0, 10**9), (1, 16), (500_000,))
ARRAY_TYPES = ("f4", "f8", "i1", "c8", "?", "U10", "datetime64[s]", "f4,i4")

Mutate = Callable[[random.Random, Path], None]


@dataclass(frozen=True)
class Loaded:
    """What a sample was loaded as. Equal checksums require equal content."""

    checksums: object = None
    content: str = ""


@dataclass(frozen=True)
class Sample:
    """A valid directory, and what uses it."""

    directory: Path
    use: Callable[[Path], Loaded]
    """Reads a directory."""


@dataclass(frozen=True)
class Outcome:
    """What happened in a case: `loaded`, `error` (an NMTError) or one of `VIOLATIONS`."""

    kind: str
    detail: str
    seconds: float
    megabytes: float


# ---- valid directories


def _tokenizer() -> Tokenizer:
    rng = random.Random(0)
    lines = [" ".join(rng.choices(SYLLABLES, k=5)) for _ in range(300)]
    return train_tokenizer(lines, config_io.load(None, ["tokenizer.vocab_size=300"]).tokenizer)


def _network(config: Config, vocab_size: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {
        name: tensor.detach()
        for name, tensor in build_model(config.model, vocab_size).state_dict().items()
    }


DATA = """{
  "max_source_length": 60, "max_sentences_per_line": 2, "pairs": {"train": 300}, "dropped": {"blank": 1},
  "recipe": {"train": [["files", "0"]], "valid": ["files", "0"]}, "mix": [{"pairs": 300, "pairs_per_epoch": 300}],
  "derived_from": [{"model": "m", "checkpoint": "step-000002", "sha256": "0", "imported": []}],
  "translators": [
    {"model": "m", "checkpoint": "c", "sha256": "0", "imported": [{"source": "s", "license": "l"}], "share": 0.5}
  ]
}"""  # noqa: E501
METRICS = """{"step": 1, "loss": 3.0}
{"step": 2, "seconds": 1.0, "loss": 3.0, "valid_loss": 2.0, "valid_bleu": 1.0, "valid_chrf": 1.0}
"""
REPORT = """{
  "model": "step-000002", "test": "t", "search": "greedy", "weights": "",
  "scores": [{"name": "BLEU", "value": 1.0, "signature": "s", "half_interval": 0.5}]
}"""
COMPARISON = """{
  "start": "s", "checkpoint": "step-000002", "search": "greedy",
  "tests": [
    {"test": "t", "metrics": [{"name": "BLEU", "first_score": 1.0, "second_score": 2.0, "p": 0.1, "better": 1}]}
  ]
}"""  # noqa: E501


def make_run(directory: Path) -> Sample:
    """Write a run with all its files."""
    config = config_io.load(None, SIZES)
    tokenizer = _tokenizer()
    (directory / "eval").mkdir(parents=True)
    (directory / "config.yaml").write_text(config_io.dump(config))
    tokenizer.save(directory)
    weights = _network(config, len(tokenizer))
    training = {"optimizer": torch.zeros(3)}
    scores = {"best_metric_value": 1.0, "valid_loss": 2.0}
    for step in (1, 2):
        progress = Progress(step=step, best=1.0, best_loss=2.0, scores=scores)
        saved = checkpoint.save(directory, progress, weights, training, tokenizer.checksum)
    run_report.log_session(directory, 0, "cpu", 1, "float32")
    (directory / "data.json").write_text(DATA)
    (directory / "metrics.jsonl").write_text(METRICS)
    (directory / "eval" / "t.json").write_text(REPORT)
    (directory / run_report.COMPARISON).write_text(COMPARISON)
    _calibration(saved).save(directory / checkpoint.CALIBRATION)
    model_card.write_card(directory)
    return Sample(directory, use_run)


def _calibration(saved: Path) -> Calibration:
    return Calibration(
        bias=0.0,
        log_length_ratio=0.0,
        features={name: Feature(0.0, 1.0, 0.1) for name in FEATURE_SIGNS},
        definition="d",
        metric="chrf",
        checkpoint=saved.name,
        weights=sha256(saved / WEIGHTS),
        search="greedy",
        data="valid",
        sentences=20,
        held_out={"pearson": 0.5, "calibration_error": 0.1},
    )


def _marian_config() -> Config:
    return config_io.load(None, [*SIZES, "model.norm_position=post", "model.output_bias=true"])


def _marian_vocabulary(directory: Path, special: Sequence[str]) -> dict[str, int]:
    """Write the tokenizers of a Marian model, and return its vocabulary."""
    directory.mkdir(parents=True)
    tokenizer = _tokenizer()
    for name in ("source.spm", "target.spm"):
        (directory / name).write_bytes(tokenizer.model)
    texts = tokenizer.ids_to_pieces(range(4, len(tokenizer)))
    return {piece: i for i, piece in enumerate([*special, *texts])}


def _transformers_weights(vocab_size: int) -> dict[str, torch.Tensor]:
    """Return random weights by the names of Transformers."""
    network = _network(_marian_config(), vocab_size)
    weights = {
        "model.shared.weight": network["embeddings.shared"],
        "final_logits_bias": torch.zeros(1, vocab_size),
    }
    for stack, parts in marian_names.LAYER.items():
        for name, targets in parts.items():
            for kind in ("weight", "bias"):
                chunks = network[f"{stack}.0.{name}.{kind}"].chunk(len(targets))
                for target, chunk in zip(targets, chunks, strict=True):
                    weights[f"model.{stack}.layers.0.{target}.{kind}"] = chunk.clone()
    return weights


def _marian_weights(vocab_size: int) -> dict[str, torch.Tensor]:
    """Return random weights by the names of Marian."""
    config = _marian_config()
    network = _network(config, vocab_size)
    weights = {
        "Wemb": network["embeddings.shared"],
        "decoder_ff_logit_out_b": torch.zeros(1, vocab_size),
    }
    for matrix in matrices(config.model):
        chunks = network[f"{matrix.name}.weight"].chunk(len(matrix.weights))
        for target, chunk in zip(matrix.weights, chunks, strict=True):
            weights[target] = chunk.t()
        chunks = network[f"{matrix.name}.bias"].chunk(len(matrix.biases))
        for target, chunk in zip(matrix.biases, chunks, strict=True):
            weights[target] = chunk[None]
    for name, target in norms(config.model):
        weights[f"{target}_scale"] = network[f"{name}.weight"][None]
        weights[f"{target}_bias"] = network[f"{name}.bias"][None]
    return weights


HUGGING_FACE_CONFIG = """{
  "model_type": "marian", "activation_function": "swish", "d_model": 16, "max_position_embeddings": 64,
  "encoder_layers": 1, "encoder_ffn_dim": 32, "encoder_attention_heads": 2,
  "decoder_layers": 1, "decoder_ffn_dim": 32, "decoder_attention_heads": 2,
  "pad_token_id": 2, "eos_token_id": 0, "decoder_start_token_id": 2
}"""  # noqa: E501
TOKENIZER_CONFIG = '{"source_lang": "en", "target_lang": "de", "model_max_length": 64}'


def make_huggingface(directory: Path) -> Sample:
    """Write a MarianMT model of Hugging Face."""
    ids = _marian_vocabulary(directory, ("</s>", "<unk>", "<pad>"))
    (directory / "config.json").write_text(HUGGING_FACE_CONFIG)
    (directory / "vocab.json").write_text(json.dumps(ids))
    (directory / "generation_config.json").write_text('{"num_beams": 2}')
    (directory / "tokenizer_config.json").write_text(TOKENIZER_CONFIG)
    (directory / "data.json").write_text('{"max_source_length": 60}')
    (directory / "README.md").write_text("---\nlicense: [apache-2.0]\n---\n")
    save_file(_transformers_weights(len(ids)), directory / "model.safetensors")
    return Sample(directory, use_import)


def make_pickle(directory: Path) -> Sample:
    """Write a MarianMT model of Hugging Face with a pickle."""
    make_huggingface(directory)
    weights = load_file(directory / "model.safetensors")
    (directory / "model.safetensors").unlink()
    torch.save(weights, directory / "pytorch_model.bin")
    return Sample(directory, use_import)


MARIAN_OPTIONS = """{
  "type": "transformer", "dim-emb": 16, "enc-depth": 1, "dec-depth": 1, "transformer-heads": 2,
  "transformer-dim-ffn": 32, "transformer-ffn-activation": "swish", "tied-embeddings-all": true,
  "transformer-preprocess": "", "transformer-postprocess": "dan", "transformer-postprocess-emb": "d"
}"""


def make_marian(directory: Path) -> Sample:
    """Write a release of Marian."""
    ids = _marian_vocabulary(directory, ("</s>", "<unk>"))
    (directory / "vocab.yml").write_text(
        "".join(f"{json.dumps(piece)}: {i}\n" for piece, i in ids.items())
    )
    decoder = "models: [model.npz]\nvocabs: [vocab.yml, vocab.yml]\nbeam-size: 2\nnormalize: 1.0\n"
    (directory / "decoder.yml").write_text(decoder)
    weights = _marian_weights(len(ids))
    stored: dict[str, Any] = {name: tensor.numpy() for name, tensor in weights.items()}
    stored["special:model.yml"] = np.frombuffer(MARIAN_OPTIONS.encode() + b"\0", np.int8)
    np.savez(directory / "model.npz", **stored)
    return Sample(directory, use_import)


def make_archive(directory: Path) -> Sample:
    """Write a release of Marian as an archive."""
    make_marian(directory / "release")
    shutil.make_archive(str(directory / "release"), "zip", directory, "release")
    shutil.rmtree(directory / "release")
    return Sample(directory, lambda path: use_import(path / "release.zip"))


def make_imported(directory: Path) -> Sample:
    """Write the run of an imported model, which has a `tokenizer.zip`."""
    source = directory.with_name(f"{directory.name}-source")
    make_huggingface(source)
    import_model(str(source), directory)
    return Sample(directory, use_run)


SAMPLES = {
    "run": make_run,
    "imported run": make_imported,
    "Hugging Face": make_huggingface,
    "pickle": make_pickle,
    "Marian": make_marian,
    "Marian archive": make_archive,
}


# ---- readers


def use_run(run: Path) -> Loaded:
    """Read all files of a run, and translate with it."""
    model = discovery.load(run)
    digest = hashlib.sha256(model.tokenizer.model)
    weights = model.model.state_dict()
    for name in sorted(weights):
        digest.update(name.encode())
        digest.update(weights[name].contiguous().numpy().tobytes())
    meta = checkpoint.read_meta(model.checkpoint)
    translator = Translator.load(run, "cpu", "fp32")
    translator.translate(["ba be bi bo"], "greedy")
    with contextlib.suppress(NMTError):
        _ = translator.calibration
    with contextlib.suppress(NMTError):
        model_card.card(run_report.collect(run))
    model_card.read_metadata(run)
    with contextlib.suppress(NMTError):
        checkpoint.load_latest_intact(run)
    return Loaded((meta["tokenizer"], meta["sha256"]), digest.hexdigest())


def use_import(source: Path) -> Loaded:
    """Import a model, and translate with it."""
    with tempfile.TemporaryDirectory() as directory:
        run = import_model(str(source), Path(directory) / "run")
        Translator.load(run, "cpu", "fp32").translate(["ba be bi bo"], "greedy")
        run_report.collect(run)
    return Loaded()


# ---- mutations


def truncate(rng: random.Random, file: Path) -> None:
    """Cut a file."""
    content = file.read_bytes()
    file.write_bytes(content[: rng.randrange(len(content) + 1)])


def _last_position(rng: random.Random, content: bytearray) -> int:
    """Return where the bytes to change end: at the end of a file, or of its headers."""
    if rng.random() < 0.5:
        return len(content)
    return min(len(content), 200)


def flip_bits(rng: random.Random, file: Path) -> None:
    """Change bits, often at the start, where the headers are."""
    content = bytearray(file.read_bytes())
    end = _last_position(rng, content)
    num_bits = rng.choice((1, 1, 4, 16)) if end else 0
    for _ in range(num_bits):
        bit = rng.randrange(8)
        content[rng.randrange(end)] ^= 1 << bit
    file.write_bytes(content)


def change_word(rng: random.Random, file: Path) -> None:
    """Replace 32 bits by an extreme number."""
    content = bytearray(file.read_bytes())
    end = _last_position(rng, content)
    if end > 4:
        position = rng.randrange(end - 3)
        struct.pack_into("<I", content, position, rng.choice(WORDS))
    file.write_bytes(content)


def insert_bytes(rng: random.Random, file: Path) -> None:
    """Insert random or repeated bytes."""
    content = file.read_bytes()
    position = rng.randrange(len(content) + 1)
    inserted = rng.choice(
        (rng.randbytes(50), b"[" * 100_000, b"\0" * 1000, b"- " * 5000, content[:100])
    )
    file.write_bytes(content[:position] + inserted + content[position:])


def replace_file(rng: random.Random, file: Path) -> None:
    """Replace a file by something that is not a regular file, or by another file."""
    others = [path for path in file.parent.rglob("*") if path.is_file()]
    other = rng.choice(others).read_bytes()
    file.unlink()
    kind = rng.choice(
        ("fifo", "directory", "loop", "device", "socket", "descriptor", "empty", "other", "missing")
    )
    if kind == "fifo":
        os.mkfifo(file)
    elif kind == "directory":
        file.mkdir()
    elif kind == "loop":
        file.symlink_to(file)
    elif kind == "device":
        file.symlink_to("/dev/zero")
    elif kind == "socket":
        with (
            contextlib.closing(socket.socket(socket.AF_UNIX)) as listener,
            contextlib.suppress(OSError),
        ):
            listener.bind(str(file))
    elif kind == "descriptor":
        file.symlink_to("/dev/fd/0")
    elif kind in ("empty", "other"):
        file.write_bytes(other if kind == "other" else b"")


def _positions(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container in a document with each of its keys or indices."""
    keys: list[Any] = []
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = list(range(len(value)))
    for key in keys[:50]:
        yield value, key
        yield from _positions(value[key])


def mutate_json(rng: random.Random, text: str) -> str:
    """Change a value of a JSON document."""
    document = json.loads(text)
    positions = list(_positions(document))
    if not positions:
        return rng.choice(RAW)
    container, key = rng.choice(positions)
    choice = rng.random()
    if choice < 0.15:
        del container[key]
    elif choice < 0.25 and isinstance(container, dict):
        container[str(rng.choice(VALUES))[:50]] = rng.choice(VALUES)
    elif choice < 0.5:
        container[key] = "RAW-VALUE"
        return json.dumps(document).replace('"RAW-VALUE"', rng.choice(RAW))
    elif choice < 0.55:
        return rng.choice((*RAW, json.dumps(rng.choice(VALUES))))
    elif choice < 0.6 and isinstance(container, dict):
        name = json.dumps(key)
        return json.dumps(document).replace(f"{name}:", f"{name}: 1, {name}:", 1)
    else:
        container[key] = rng.choice(VALUES)
    return json.dumps(document)


def mutate_lines(rng: random.Random, text: str) -> str:
    """Change a line of a YAML or JSONL document."""
    lines = text.split("\n")
    i = rng.randrange(len(lines))
    name, colon, _ = lines[i].partition(":")
    choice = rng.random()
    if choice < 0.15:
        del lines[i]
    elif choice < 0.3:
        lines.insert(
            i,
            rng.choice(
                ("a: &a [x]", "b: *a", "? [a]", "%", "\t", lines[i], "[" * 100_000, "x: " * 1000)
            ),
        )
    elif choice < 0.4 and text.startswith("{"):
        with contextlib.suppress(ValueError):
            lines[i] = mutate_json(rng, lines[i])
    elif choice < 0.6:
        lines[i] = f"{name}{colon} {rng.choice(RAW)}"
    else:
        lines[i] = f"{name}{colon} {json.dumps(rng.choice(VALUES))}"
    return "\n".join(lines)


def mutate_text(rng: random.Random, file: Path) -> None:
    """Change a value of a document, of the header of a safetensors file or of the options of a
    Marian model."""
    if file.suffix == ".safetensors":
        content = file.read_bytes()
        start = 8 + int.from_bytes(content[:8], "little")
        header = mutate_json(rng, content[8:start].decode()).encode(errors="replace")
        file.write_bytes(struct.pack("<Q", len(header)) + header + content[start:])
    elif file.suffix == ".npz":
        _mutate_arrays(rng, file)
    elif file.suffix in (".zip", ".bin") and zipfile.is_zipfile(file):
        _mutate_archive(rng, file)
    elif file.suffix == ".json":
        file.write_text(mutate_json(rng, file.read_text()), errors="replace")
    elif file.suffix in (".yaml", ".yml", ".jsonl", ".md"):
        file.write_text(mutate_lines(rng, file.read_text()), errors="replace")
    else:
        change_word(rng, file)


def _mutate_arrays(rng: random.Random, file: Path) -> None:
    with np.load(file) as content:
        arrays = dict(content)
    name = rng.choice(list(arrays))
    choice = rng.random()
    if choice < 0.2:
        del arrays[name]
    elif choice < 0.4:
        text = mutate_json(rng, MARIAN_OPTIONS).encode(errors="replace")
        arrays["special:model.yml"] = np.frombuffer(text + b"\0", np.int8)
    elif choice < 0.6:
        suffix = rng.choice(("", "_x", "9" * 50))
        arrays[name + suffix] = arrays.pop(name)
    else:
        shape = rng.choice(ARRAY_SHAPES)
        arrays[name] = np.zeros(shape, rng.choice(ARRAY_TYPES))
    save = np.savez_compressed if rng.random() < 0.3 else np.savez
    save(file, **arrays)


def _mutate_archive(rng: random.Random, file: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(list(members))
    content = members.pop(name)
    compression = zipfile.ZIP_DEFLATED if rng.random() < 0.7 else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", compression) as archive:
        for other, data in members.items():
            archive.writestr(other, data)
        kind = rng.choice(("bomb", "outside", "link", "random", "change", "missing"))
        if kind == "bomb":
            with archive.open(name, "w", force_zip64=True) as member:
                for _ in range(200):
                    member.write(bytes(1 << 20))
        elif kind == "outside":
            archive.writestr(f"../{name}", content)
        elif kind == "link":
            link = zipfile.ZipInfo(name)
            mode = stat.S_IFLNK | 0o777
            link.external_attr = mode << 16
            archive.writestr(link, "/etc/passwd")
        elif kind == "random":
            archive.writestr(name, rng.randbytes(200))
        elif kind == "change":
            archive.writestr(name, _mutate_member(rng, content))


def _mutate_member(rng: random.Random, content: bytes) -> bytes:
    try:
        return mutate_json(rng, content.decode()).encode(errors="replace")
    except ValueError:  # not JSON
        return content


def rename_step(rng: random.Random, file: Path) -> None:
    """Rename a checkpoint, or change a byte of a file that is not in one."""
    if file.parent.name == STEP:
        names = (
            "step-9",
            f"step-{'9' * 300}",
            f"step-{'0' * 20}1",
            f"step-{2**63}",
            "step-\u0661",
            "step-\x1b[31m",
        )
        with contextlib.suppress(OSError):  # a name that is too long
            file.parent.rename(file.parent.with_name(rng.choice(names)))
    else:
        flip_bits(rng, file)


MUTATIONS: dict[str, tuple[Mutate, int]] = {
    "truncate": (truncate, 2),
    "flip bits": (flip_bits, 4),
    "extreme numbers": (change_word, 2),
    "insert bytes": (insert_bytes, 2),
    "replace the file": (replace_file, 3),
    "change a value": (mutate_text, 9),
    "rename": (rename_step, 1),
}
"""Mutations with their shares."""


def repair_checksums(run: Path) -> None:
    """Write the checksums of changed files into a run, as the author of a harmful model would."""
    for meta_file in run.glob(f"step-*/{META}"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            meta = json.loads(meta_file.read_text())
            meta["sha256"][WEIGHTS] = sha256(meta_file.with_name(WEIGHTS))
            meta["tokenizer"] = sha256(tokenizer_file(run))
            meta_file.write_text(json.dumps(meta))


# ---- cases


def run_case(sample: Sample, mutation: str, rng: random.Random, expected: Loaded) -> Outcome:
    """Mutate a copy of a sample and use it in a child process."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "copy"
        shutil.copytree(sample.directory, directory)
        files = sorted(path for path in directory.rglob("*") if path.is_file())
        mutate, _ = MUTATIONS[mutation]
        mutate(rng, rng.choice(files))
        is_repaired = sample.use is use_run and rng.random() < 0.5
        if is_repaired and not any(
            path.is_fifo() or path.is_symlink() for path in directory.rglob("*")
        ):
            repair_checksums(directory)
        return _in_child(lambda: sample.use(directory), expected)


def _in_child(use: Callable[[], Loaded], expected: Loaded) -> Outcome:
    read_end, write_end = os.pipe()
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        _report(use, expected, write_end)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        status, usage = _wait(child, start + MAX_SECONDS)
        kind, _, detail = pipe.read().decode(errors="replace").partition("\n")
    seconds, megabytes = time.monotonic() - start, usage.ru_maxrss / 1024
    if os.WIFSIGNALED(status):
        is_late = seconds >= MAX_SECONDS
        kind, detail = (
            ("timeout", "") if is_late else ("crash", signal.Signals(os.WTERMSIG(status)).name)
        )
    elif megabytes > MAX_MEGABYTES:
        kind = "memory"
    return Outcome(kind, detail, seconds, megabytes)


def _report(use: Callable[[], Loaded], expected: Loaded, write_end: int) -> None:
    """Use a directory, and write what happened to a pipe. Does not return."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 2)
    try:
        loaded = use()
        is_changed = loaded.checksums == expected.checksums and loaded.content != expected.content
        report = "changed" if is_changed else "loaded"
    except NMTError as error:
        report = f"error\n{error.message}"
    except BaseException:
        report = f"traceback\n{traceback.format_exc()}"
    os.write(write_end, report.encode(errors="replace")[-60_000:])
    os._exit(0)


def _wait(child: int, deadline: float) -> tuple[int, Any]:
    while time.monotonic() < deadline:
        done, status, usage = os.wait4(child, os.WNOHANG)
        if done:
            return status, usage
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    return status, usage


@dataclass(frozen=True)
class Case:
    """A case of the fuzzer; `number` and the seed determine it."""

    number: int
    sample: str
    mutation: str
    outcome: Outcome


def fuzz(
    directory: Path, num_cases: int, seed: int, names: Sequence[str] = tuple(SAMPLES)
) -> list[Case]:
    """Run cases of these samples in turn."""
    torch.set_num_threads(1)
    os.environ["NMT_RUNS"] = str(directory / "runs")
    samples = {name: SAMPLES[name](directory / name.replace(" ", "-")) for name in names}
    expected = {name: sample.use(sample.directory) for name, sample in samples.items()}
    cases = []
    for number in range(num_cases):
        rng = random.Random(f"{seed} {number}")
        name = names[number % len(names)]
        weights = [weight for _, weight in MUTATIONS.values()]
        [mutation] = rng.choices(list(MUTATIONS), weights)
        outcome = run_case(samples[name], mutation, rng, expected[name])
        cases.append(Case(number, name, mutation, outcome))
    return cases


def _print_table(cases: Sequence[Case]) -> None:
    kinds = ("loaded", "error", *VIOLATIONS)
    header = "".join(f"{kind:>10}" for kind in kinds)
    print(f"{'sample':16}{header}  max s  max MB")
    for sample in SAMPLES:
        outcomes = [case.outcome for case in cases if case.sample == sample]
        counts = collections.Counter(outcome.kind for outcome in outcomes)
        if outcomes:
            row = "".join(f"{counts[kind]:10}" for kind in kinds)
            slowest = max(outcome.seconds for outcome in outcomes)
            largest = max(outcome.megabytes for outcome in outcomes)
            print(f"{sample:16}{row}{slowest:7.1f}{largest:8.0f}")


def main() -> int:
    """Print the table; return 1 if there is a violation."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--details", type=int, default=20, help="number of violations to print")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        cases = fuzz(Path(name), arguments.cases, arguments.seed)
    _print_table(cases)
    violations = [case for case in cases if case.outcome.kind in VIOLATIONS]
    for case in violations[: arguments.details]:
        print(
            f"\ncase {case.number}: {case.sample}, {case.mutation}: {case.outcome.kind}"
            f" {case.outcome.detail[-1500:]}"
        )
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
