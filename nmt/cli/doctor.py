"""`nmt doctor`."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nmt.cli.options import JsonOption
from nmt.core.console import counted
from nmt.core.layout import format_fields
from nmt.core.packages import install_line
from nmt.jobs.output import show, show_json

INSTRUCTION_SETS = (
    "avx2",
    "fma",
    "avx_vnni",
    "avx512f",
    "avx512bw",
    "avx512_vnni",
    "avx512_bf16",
    "amx_tile",
    "amx_bf16",
    "amx_int8",
    "asimd",
    "asimddp",
    "bf16",
    "i8mm",
    "sve",
)
"""CPU flags that affect the speed of matrix products, by their names in Linux."""
OPTIONAL = (
    "ctranslate2",
    "matplotlib",
    "mlflow-skinny",
    "onnxruntime",
    "tensorboard",
    "trackio",
    "transformers",
    "unbabel-comet",
    "wandb",
)


def doctor(json_: JsonOption = False) -> None:
    """Show system information for bug reports.

    Shows the CPU, the native engine, the measured speed of each precision, memory, GPU, directories
    and package versions.

    Examples:
      nmt doctor
      nmt doctor --json
    """
    info = _system_info()
    if json_:
        show_json(info)
        return
    show("\n".join(format_fields(info)))


def _system_info() -> dict[str, Any]:
    from nmt.core import paths, runtime
    from nmt.core.version import __version__
    from nmt.engines import engine_library
    from nmt.runs.run_report import memory_gb

    flags = engine_library.cpu_flags().split()
    instruction_sets = [name for name in INSTRUCTION_SETS if name in flags]
    cpu = runtime.cpu_name()
    engine, rates = _engine_info()
    threads = counted(runtime.num_threads(), "thread")
    memory = memory_gb()
    directories = {"data": paths.data_dir, "runs": paths.runs_dir, "cache": paths.cache_dir}
    pytorch, gpus = _pytorch_info()
    return {
        "nmt": f"{__version__}, Python {platform.python_version()}, {platform.platform()}",
        "CPU": f"{cpu}, {counted(os.cpu_count() or 1, 'logical CPU')}, {threads}",
        "instruction sets": " ".join(instruction_sets) or "unknown",
        "native engine": engine,
        "precision auto": rates or "not measured",
        "memory": f"{memory} GB" if memory else "unknown",
        "PyTorch": pytorch,
        "GPU": gpus or "none",
        "directories": [f"{name} {describe_directory(directories[name])}" for name in directories],
        "packages": [f"{name} {_version(name)}" for name in OPTIONAL],
    }


def _pytorch_info() -> tuple[str, list[str]]:
    """Return a description of PyTorch, and the names of the GPUs."""
    if find_spec("torch") is None:
        return f"not installed ({install_line('torch')})", []
    import torch

    cuda = torch.version.cuda or "none"
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    threads = counted(torch.get_num_threads(), "thread")
    return f"{torch.__version__}, {threads}, CUDA {cuda}", gpus


def _engine_info() -> tuple[str, list[str]]:
    """Return a description of the native engine, and the measured rates of this processor with this
    number of threads."""
    from nmt.core import fastest
    from nmt.core.config import ModelConfig
    from nmt.engines import engine_library, native

    engine = f"not available: {native.unavailable_reason()}"
    versions = [f"torch {_version('torch')}"]
    if native.is_available():
        native.fastest_precision(ModelConfig())  # measures if necessary
        library = native.library()
        support = ("emulated", "in hardware", "in the matrix unit (AMX)")
        types = [
            f"{name} {support[library.hardware_support(i) - 1]}"
            for i, name in enumerate(native.TYPES)
        ]
        prebuilt = engine_library.find_prebuilt()
        origin = f"{prebuilt.stem} of the package" if prebuilt else "compiled"
        engine = f"{origin}, {library.lanes()}-lane vectors; {', '.join(types)}"
        versions.append(engine_library.library_version())
    lines = []
    for key, rates in fastest.cached_rates().items():
        for version in versions:
            task = key.removesuffix(fastest.conditions(version))
            if task != key:
                lines.append(f"{task}: {fastest.summarize(rates)}")
    return engine, lines


def describe_directory(find: Callable[[], Path]) -> str:
    """Return the path of a directory and whether it can be used."""
    try:
        path = find()
    except RuntimeError:
        return "unknown: there is no home directory"
    existing = next(parent for parent in (path, *path.absolute().parents) if os.path.exists(parent))
    state = "" if os.path.exists(path) else ", does not exist yet"
    return f"{path}{state}{'' if os.access(existing, os.W_OK) else ', not writable'}"


def _version(package: str) -> str:
    from importlib import metadata  # slow to import

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
