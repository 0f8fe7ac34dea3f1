"""`nmt doctor`."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from pathlib import Path
from typing import Annotated, Any

import typer

INSTRUCTION_SETS = (
    "avx2", "fma", "avx_vnni", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8",
    "asimd", "asimddp", "bf16", "i8mm", "sve",
)  # fmt: skip
"""Those that matter for the speed of matrix products, as Linux names them."""
OPTIONAL = ("ctranslate2", "matplotlib", "onnxruntime", "tensorboard", "torchdiffeq", "transformers", "unbabel-comet")


def doctor(json_: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False) -> None:
    """Show processor, engine, measured precisions, memory, GPU, folders and packages: what a bug report needs.

    Examples:
      nmt doctor
      nmt doctor --json
    """
    facts = _facts()
    if json_:
        typer.echo(json.dumps(facts, indent=2, ensure_ascii=False))
        return
    width = max(map(len, facts)) + 2
    for name, value in facts.items():
        for number, line in enumerate(value if isinstance(value, list) else [value]):
            typer.echo(f"{name if not number else '':<{width}}{line}")


def _facts() -> dict[str, Any]:
    import torch

    from nmt import __version__, autotune, paths, runtime
    from nmt.config import ModelConfig
    from nmt.inference import native
    from nmt.runs.run_info import memory_gb

    flags = native.cpu_flags().split()
    engine = f"not available: {native.problem()}"
    if native.available():
        native.fastest_precision(ModelConfig())  # so that there is a measurement to show
        kinds = ("several instructions", "native")
        types = ", ".join(f"{name} {kinds[native.library().native_type(i) - 1]}" for i, name in enumerate(native.TYPES))
        engine = f"compiled, vectors of {native.library().lanes()} numbers; {types}"
    cpu = runtime.cpu_name()
    rates = [_rate(key, rates) for key, rates in autotune.cached_rates().items() if f"; {cpu}; " in key]
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "nmt": f"{__version__}, Python {platform.python_version()}, {platform.platform()}",
        "processor": f"{cpu}, {os.cpu_count()} processors, {runtime.num_threads()} threads",
        "instruction sets": " ".join(name for name in INSTRUCTION_SETS if name in flags) or "unknown",
        "native engine": engine,
        "precision auto": rates or "nothing measured",
        "memory": f"{memory} GB" if (memory := memory_gb()) else "unknown",
        "PyTorch": f"{torch.__version__}, {torch.get_num_threads()} threads, CUDA {torch.version.cuda or 'none'}",
        "GPU": gpus or "none",
        "folders": [f"{name} {_folder(path)}" for name, path in (
            ("data", paths.data_dir()), ("runs", paths.runs_dir()), ("cache", paths.cache_dir()),
        )],
        "packages": [f"{name} {_version(name)}" for name in OPTIONAL],
    }  # fmt: skip


def _rate(key: str, rates: dict[str, float]) -> str:
    task, _, version, threads = key.split("; ")
    listed = ", ".join(f"{name} {rate:,.0f} GFLOP/s" for name, rate in rates.items())
    return f"{task}: {max(rates, key=lambda name: rates[name])} ({listed}; {threads}, {version})"


def _folder(path: Path) -> str:
    nearest = next(each for each in (path, *path.absolute().parents) if each.exists())
    state = "" if path.exists() else ", not made yet"
    return f"{path}{state}{'' if os.access(nearest, os.W_OK) else ', not writable'}"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
