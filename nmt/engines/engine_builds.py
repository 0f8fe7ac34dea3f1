"""The builds of `engine.c` in wheels: which options of the compiler each has, and which instruction
sets it needs."""

from __future__ import annotations

from typing import NamedTuple

# No flag may let the compiler reorder sums, or assume that infinity and NaN do not occur. The last
# four make the libraries a fifth smaller, at the same speed.
FLAGS = (
    "-std=gnu11 -O3 -ffp-contract=fast -fno-trapping-math -fno-math-errno -fno-strict-aliasing"
    " -shared -fPIC -fno-unswitch-loops -fno-split-loops -fno-asynchronous-unwind-tables -s"
)


class Build(NamedTuple):
    """A build of the engine for some processors."""

    name: str
    options: str
    """Options of GCC and Clang that allow the instructions."""
    cpu_flags: str
    """The instruction sets that must be in `/proc/cpuinfo`."""

    @property
    def filename(self) -> str:
        """The name of the library, which lies next to `engine.c`."""
        return f"engine-{self.name}.so"


_AVX2 = "avx2 fma bmi1 bmi2 f16c abm movbe"
_AVX512 = f"{_AVX2} avx512f avx512bw avx512cd avx512dq avx512vl"
_VNNI = f"{_AVX512} avx512_vnni"
_BF16 = f"{_VNNI} avx512_bf16"
BUILDS = {
    "x86_64": (
        Build(
            "amx",
            "-march=x86-64-v4 -mavx512vnni -mavx512bf16 -mamx-tile -mamx-bf16 -mamx-int8",
            f"{_BF16} amx_tile amx_bf16 amx_int8",
        ),
        Build("avx512bf16", "-march=x86-64-v4 -mavx512vnni -mavx512bf16", _BF16),
        Build("avx512vnni", "-march=x86-64-v4 -mavx512vnni", _VNNI),
        Build("avx512", "-march=x86-64-v4", _AVX512),
        Build("avx2vnni", "-march=x86-64-v3 -mavxvnni", f"{_AVX2} avx_vnni"),
        Build("avx2", "-march=x86-64-v3", _AVX2),
        # For processors of 2011; -O3 more than doubles its size.
        Build("sse2", "-Os -march=x86-64", ""),
    ),
    "aarch64": (
        Build("dotprod", "-march=armv8.2-a+dotprod", "asimd asimddp atomics"),
        Build("neon", "-march=armv8-a", ""),
    ),
    "arm64": (Build("apple", "-mcpu=apple-m1", ""),),  # macOS
}
"""The builds for each kind of machine, as named by `platform.machine`; the fastest first."""
