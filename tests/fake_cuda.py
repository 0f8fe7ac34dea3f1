"""An emulated GPU for machines without one: tensors that report `cuda:0` and compute on the CPU.

    with fake_cuda() as gpu:
        train(config, run, device="cuda")
    print(gpu.waits)

Inside the context, the code takes its CUDA branches with the numbers of a CPU. A product of a
tensor of the GPU with one of the CPU raises `DeviceMismatchError`, as on a GPU, and operations that
make the host wait for a GPU are counted by their place in the code. A GPU tensor is a wrapper that
holds a tensor of the CPU (`host`); PyTorch itself sees a tensor of the `meta` device without
storage, and passes each operator to `__torch_dispatch__`, which runs it on the hosts. The random
generator of the GPU is separate from that of the CPU, and the values of an asynchronous copy to the
CPU are there after the next wait.

Limits:

- Kernels, streams, memory and speed are those of a CPU. Only waits that PyTorch itself causes are
counted, and an
  out-of-memory error must be raised by a test.
- A device must have an index: `cuda:0`, as `runtime.resolve_device` returns it.
- Indexing with a list (`x[:, [0, 1]]`) returns wrong values, because PyTorch makes the index before
the dispatch.
- `Module.to` replaces the parameters of the module instead of changing them in place.
- Threads other than the one that entered the context see no GPU, except for `pin_memory`.
- A CUDA graph captures the operators, and not the kernels; its capture fails if the host waits.
- `torch.compile` does not trace these tensors.
- The emulation uses private interfaces of PyTorch 2.13. Tests fail where another version changes
  them.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import nmt
from nmt.engines import cuda_graphs

CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")
CONTAINERS = (list, tuple, dict)  # `isinstance` is slower with a union
PACKAGE = f"{Path(nmt.__file__).parent}/"
COPIES = {"copy_", "_to_copy", "_pack_padded_sequence", "_pad_packed_sequence"}
"""Operators that accept tensors of both devices."""
INDEXING = {"index", "index_put_", "_index_put_impl_"}
"""Operators that accept an index on the CPU, and copy it to the GPU."""
VALUE_DEPENDENT = {
    "_local_scalar_dense",
    "is_nonzero",
    "equal",
    "nonzero",
    "masked_select",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
}
"""Operators whose result the host needs, or whose output size depends on values."""


class DeviceMismatchError(RuntimeError):
    """An operator received tensors of the GPU and of the CPU."""


class FakeCUDA(TorchDispatchMode):
    """The emulated GPU; `waits` counts what makes the host wait for it."""

    # PyTorch then does not initialize the CUDA driver.
    _mode_key = torch._C._TorchDispatchModeKey.FAKE
    fake_tensor_converter = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise the first operator imports torch's compiler, which takes seconds

    def __init__(self) -> None:
        super().__init__()
        self.waits: collections.Counter[str] = collections.Counter()
        """Number of waits by operation and place, such as `_local_scalar_dense at
        train/step.py:90`."""
        self.copies: collections.Counter[str] = collections.Counter()
        """Number of asynchronous copies from pinned memory, by place."""
        self.operators: collections.Counter[str] = collections.Counter()
        """Number of operators with a tensor of the GPU: an upper bound of the number of kernel
        launches."""
        self.rng_state = torch.Generator().get_state()
        self.pending_copies: list[tuple[Tensor, Tensor]] = []
        """Asynchronous copies to the CPU, whose values are there after the next wait."""
        self.replays = 0
        """Number of replays of CUDA graphs."""
        self.pools: list[object] = []
        """The memory pool of each capture; None: a new one."""
        self.is_capture_invalid = False
        self.captured: list[Callable[[], object]] | None = None
        """The operators of the CUDA graph that is being captured."""

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operator on the hosts of its tensors."""
        kwargs = dict(kwargs or {})
        # Composite operators arrive whole, like `to`.
        if torch.is_inference_mode_enabled() and _is_composite(func):
            with self:
                return func.decompose(*args, **kwargs)
        return self.run(func, args, kwargs)

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator on the hosts of its tensors, and return tensors of the GPU if it ran
        there."""
        name = func.__name__.partition(".")[0]
        if name == "is_pinned":
            return getattr(args[0], "is_pinned_memory", False)
        leaves = _leaves((args, kwargs))
        inputs = [x for x in leaves if isinstance(x, GPUTensor)]
        device = kwargs.get("device")
        to_gpu = device is not None and torch.device(device).type != "cpu"
        to_cpu = device is not None and not to_gpu and bool(inputs)
        if inputs:
            self._check_devices(
                name, [x for x in leaves if isinstance(x, Tensor) and not isinstance(x, GPUTensor)]
            )
            self._note_waits(name, args, to_cpu and not kwargs.get("non_blocking"))
            self.operators[name] += 1
        elif to_gpu and name == "_to_copy" and args[0].numel():
            if kwargs.get("non_blocking") and getattr(args[0], "is_pinned_memory", False):
                self.copies[f"copy to the GPU {_place()}"] += 1
            else:
                self._wait("copy to the GPU")
        if name == "_conj":  # the lazy conjugate of a host would be ignored
            func = torch.ops.aten.conj_physical.default
        host_args = tuple(map(_host, args))
        host_kwargs = {key: _host(value) for key, value in kwargs.items()}
        on_gpu = to_gpu or (bool(inputs) and not to_cpu)
        random = on_gpu and torch.Tag.nondeterministic_seeded in func.tags
        with (
            self._gpu_generator() if random else contextlib.nullcontext(),
            _views_of_normal_tensors(func, inputs),
        ):
            run = func
            if self.captured is not None:
                run = functools.partial(self._capture, func, random)
            result = run(*host_args, **host_kwargs)
            if to_cpu and kwargs.get("non_blocking"):
                self.pending_copies.append((result, result.clone()))
                result.zero_()
            if not on_gpu or (name == "copy_" and not isinstance(args[0], GPUTensor)):
                return result
            # In-place: the same object.
            by_host = {id(x.host): x for x in inputs} if func._schema.is_mutable else {}

            def wrap(x: Any) -> Any:
                if not isinstance(x, Tensor):
                    return x
                return by_host[id(x)] if id(x) in by_host else GPUTensor(x)

            if name == "_pack_padded_sequence":  # the batch sizes stay on the CPU
                return wrap(result[0]), result[1]
            return _mapped(wrap, result)

    def _capture(self, func: Any, random: bool, *args: Any, **kwargs: Any) -> Any:
        """Add an operator to the graph, and return its results without values. Random numbers are
        drawn by the replays only."""
        assert self.captured is not None
        state = torch.get_rng_state()
        try:
            return self._captured_result(func, random, args, kwargs)
        finally:
            if random:
                torch.set_rng_state(state)

    def _captured_result(
        self, func: Any, random: bool, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        assert self.captured is not None
        if any(
            result.alias_info is not None and not result.alias_info.is_write
            for result in func._schema.returns
        ):
            return func(*args, **kwargs)  # a view
        if func._schema.is_mutable:
            self.captured.append(self._seeded(lambda: func(*args, **kwargs), random))
            return kwargs.get("out", args[0]) if func._schema.returns else None
        results = func(*args, **kwargs)

        def run() -> None:
            for result, value in zip(_leaves(results), _leaves(func(*args, **kwargs)), strict=True):
                result.copy_(value)

        self.captured.append(self._seeded(run, random))
        return _mapped(Tensor.zero_, results)

    def _seeded(self, run: Callable[[], object], random: bool) -> Callable[[], object]:
        """Return what runs an operator with the generator of the GPU."""
        if not random:
            return run

        def run_seeded() -> None:
            with self._gpu_generator():
                run()

        return run_seeded

    def _check_devices(self, name: str, on_cpu: list[Tensor]) -> None:
        arrays = [x for x in on_cpu if x.dim()]  # a number is passed as a tensor without dimensions
        if not arrays or name in COPIES:
            return
        if name not in INDEXING:
            raise DeviceMismatchError(
                f"{name} with a tensor {[*arrays[0].shape]} on the CPU {_place()}"
            )
        self._wait("copy of an index to the GPU")

    def _note_waits(self, name: str, args: tuple[Any, ...], to_cpu: bool) -> None:
        masks = name in INDEXING and any(
            isinstance(x, Tensor) and x.dtype in (torch.bool, torch.uint8) for x in _leaves(args[1])
        )
        repeats = name == "repeat_interleave" and isinstance(args[0], Tensor) and len(args) == 1
        from_gpu = name == "copy_" and not isinstance(args[0], GPUTensor)
        to_cpu = to_cpu and args[0].numel() > 0
        if name in VALUE_DEPENDENT or masks or repeats or to_cpu or from_gpu:
            self._wait("copy to the CPU" if to_cpu or from_gpu else name)
        to_gpu = (
            name == "copy_"
            and isinstance(args[0], GPUTensor)
            and not isinstance(args[1], GPUTensor)
            and args[1].dim()
        )
        if to_gpu and len(args) > 2 and getattr(args[1], "is_pinned_memory", False):
            self.copies[f"copy to the GPU {_place()}"] += 1
        elif to_gpu:
            self._wait("copy to the GPU")

    def _wait(self, operation: str) -> None:
        if self.captured is not None:
            self.is_capture_invalid = True
            raise RuntimeError(f"{operation} in a CUDA graph {_place()}")
        self.waits[f"{operation} {_place()}"] += 1
        for tensor, values in self.pending_copies:
            tensor.copy_(values)
        self.pending_copies.clear()

    @contextlib.contextmanager
    def _gpu_generator(self) -> Iterator[None]:
        cpu_state = torch.get_rng_state()
        torch.set_rng_state(self.rng_state)
        try:
            yield
        finally:
            self.rng_state = torch.get_rng_state()
            torch.set_rng_state(cpu_state)

    def manual_seed_all(self, seed: int) -> None:
        """Seed the generator of the GPU."""
        self.rng_state = torch.Generator().manual_seed(seed).get_state()

    def set_rng_state(self, state: Tensor, device: object = None) -> None:
        """Set the state of the generator of the GPU."""
        self.rng_state = state.clone()

    def wait(self, device: object = None) -> None:
        """Wait for the GPU: `torch.cuda.synchronize`."""
        self._wait("synchronize")

    def graph(self) -> Graph:
        """Return an empty CUDA graph."""
        return Graph(self)

    def event(self) -> mock.Mock:
        """Return an event of a stream, which can be waited for."""
        return mock.Mock(spec=["record", "synchronize"], synchronize=self.wait)


class Graph:
    """A CUDA graph."""

    def __init__(self, gpu: FakeCUDA) -> None:
        """Create an empty graph."""
        self.gpu, self.operators = gpu, list[Callable[[], object]]()

    def capture_begin(self, pool: object = None, capture_error_mode: str = "global") -> None:
        """Record operators instead of running them."""
        self.gpu.captured, self.gpu.is_capture_invalid = self.operators, False
        self.gpu.pools.append(pool)

    def capture_end(self) -> None:
        """Run operators again."""
        self.gpu.captured = None
        if self.gpu.is_capture_invalid:
            raise RuntimeError("operation failed due to a previous error during capture")

    def replay(self) -> None:
        """Run the recorded operators."""
        self.gpu.replays += 1
        for operator in self.operators:
            operator()

    def pool(self) -> Graph:
        """Return the memory pool."""
        return self


class GPUTensor(Tensor):
    """A tensor of the emulated GPU."""

    host: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl
    device = property(lambda self: CUDA)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)
    is_meta = property(lambda self: False)

    @staticmethod
    def __new__(cls, host: Tensor) -> GPUTensor:
        """Wrap a tensor of the CPU."""
        wrapper: GPUTensor = Tensor._make_wrapper_subclass(
            cls,
            host.shape,
            strides=host.stride(),
            storage_offset=host.storage_offset(),
            dtype=host.dtype,
            layout=host.layout,
            device="meta",
            requires_grad=False,
        )
        wrapper.host = host
        return wrapper

    @classmethod
    def __torch_dispatch__(
        cls,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Raise: the context of the GPU has ended."""
        raise RuntimeError(f"{func} with a tensor of an emulated GPU outside `fake_cuda`")

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"GPUTensor({self.host!r})"

    @property
    def data(self) -> Any:
        """The tensor without its graph."""
        return self.detach()

    @data.setter
    def data(self, value: Any) -> None:
        self.host = value.host

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Return the tensor itself if it has the device and dtype, as PyTorch does."""
        is_copy = kwargs.get("copy", False)
        options = {name: value for name, value in kwargs.items() if name != "copy"}
        device, dtype, *_ = torch._C._nn._parse_to(*args, **options)
        on_gpu = device is None or device.type == "cuda"
        same = on_gpu and dtype in (None, self.dtype) and not is_copy
        return self if same else super().to(*args, **kwargs)

    def tolist(self) -> Any:
        """Return the values, after waiting for them."""
        return self.cpu().tolist()

    def data_ptr(self) -> int:
        """Return the address of the host."""
        return self.host.data_ptr()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            copy: Any = GPUTensor(self.host.detach().clone()).requires_grad_(self.requires_grad)
            if isinstance(self, torch.nn.Parameter):
                copy._is_param = True
            memo[id(self)] = copy
        return memo[id(self)]


def _leaves(x: Any) -> list[Any]:
    """Return the values in lists, tuples and dicts. PyTorch's own function takes most of the time
    of an operator."""
    leaves, remaining = [], [x]
    for each in remaining:
        if not isinstance(each, CONTAINERS):
            leaves.append(each)
        elif isinstance(each, dict):
            remaining += each.values()
        else:
            remaining += each
    return leaves


def _mapped(function: Callable[[Any], Any], x: Any) -> Any:
    """Return lists, tuples and dicts with the function of each value."""
    if not isinstance(x, CONTAINERS):
        return function(x)
    if isinstance(x, dict):
        return {key: _mapped(function, value) for key, value in x.items()}
    return type(x)([_mapped(function, each) for each in x])


def _host(x: Any) -> Any:
    if isinstance(x, GPUTensor):
        return x.host
    if isinstance(x, CONTAINERS):
        return _mapped(_host, x)
    return CPU if isinstance(x, torch.device) else x


@functools.cache
def _is_composite(func: Any) -> bool:
    can_decompose: bool = func._can_decompose()
    return can_decompose


@functools.cache
def _returns_alias(func: Any) -> bool:
    return any(result.alias_info is not None for result in func._schema.returns)


def _views_of_normal_tensors(
    func: Any, inputs: Sequence[GPUTensor]
) -> contextlib.AbstractContextManager[object]:
    """In inference mode, a view of a normal tensor is a normal tensor, and so must be its
    wrapper."""
    is_inference = torch.is_inference_mode_enabled()
    if is_inference and _returns_alias(func) and any(not x.is_inference() for x in inputs):
        return torch.inference_mode(False)
    return contextlib.nullcontext()


def _place() -> str:
    """Return the innermost line of the package, such as `at training/step.py:90`."""
    frame = sys._getframe()
    while frame.f_back:
        frame = frame.f_back
        if frame.f_code.co_filename.startswith(PACKAGE):
            return f"at {frame.f_code.co_filename.removeprefix(PACKAGE)}:{frame.f_lineno}"
    return "at a test"


def _pin_memory(tensor: Tensor, device: object = None) -> Tensor:
    pinned = tensor.clone()
    pinned.is_pinned_memory = True
    return pinned


@contextlib.contextmanager
def fake_cuda(*, capability: tuple[int, int] = (9, 0)) -> Iterator[FakeCUDA]:
    """Emulate one GPU."""
    gpu = FakeCUDA()
    compatible: Callable[[Tensor, Tensor], bool] = torch._has_compatible_shallow_copy_type
    functions: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_capability": lambda device=None: capability,
        "get_device_name": lambda device=None: "Emulated GPU",
        "set_device": lambda device: None,
        "empty_cache": lambda: None,
        "synchronize": gpu.wait,
        "max_memory_allocated": lambda device=None: 2**30,
        "reset_peak_memory_stats": lambda device=None: None,
        "manual_seed_all": gpu.manual_seed_all,
        "get_rng_state": lambda device=None: gpu.rng_state.clone(),
        "set_rng_state": gpu.set_rng_state,
        "Event": gpu.event,
        "CUDAGraph": gpu.graph,
        "Stream": lambda device: mock.Mock(),
        "stream": contextlib.nullcontext,
        "current_stream": lambda device: mock.Mock(synchronize=gpu.wait),
    }
    only_lift_cpu = torch._C._only_lift_cpu_tensors()
    with contextlib.ExitStack() as stack:
        for name, function in functions.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, function))
        stack.enter_context(mock.patch.object(Tensor, "pin_memory", _pin_memory))
        stack.enter_context(mock.patch.dict(cuda_graphs._STREAMS))
        stack.enter_context(
            mock.patch.object(torch.backends.cudnn, "is_acceptable", return_value=False)
        )
        stack.enter_context(
            mock.patch.object(
                torch,
                "_has_compatible_shallow_copy_type",
                lambda input, from_: (
                    compatible(input, from_)
                    and type(input) is type(from_)
                    and input.dtype == from_.dtype
                ),
            )
        )
        # The mode belongs to this thread.
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        torch._C._set_only_lift_cpu_tensors(True)
        stack.callback(torch._C._set_only_lift_cpu_tensors, only_lift_cpu)
        stack.enter_context(gpu)
        yield gpu
