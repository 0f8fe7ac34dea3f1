"""The native engine compared with PyTorch and NumPy, and its compilation."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import itertools
import math
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nmt.cli.doctor import describe_directory
from nmt.core import paths
from nmt.core.config import Config, ModelConfig
from nmt.core.errors import CheckpointError, ConfigError, NMTError, UsageError
from nmt.data.batching import collate
from nmt.engines import Source, engine_library, native
from nmt.engines.batch_engine import BatchEngine
from nmt.engines.engine_builds import BUILDS, Build
from nmt.engines.ensemble import NativeEnsemble, mean_log_prob
from nmt.engines.load import engine_from_models, load_engine
from nmt.engines.native import Matrix, NativeModel
from nmt.engines.pytorch import TorchModel
from nmt.model.build import build_model
from nmt.model.transformer import Transformer
from nmt.runs import checkpoint, quantization
from nmt.runs.model_files import ModelFiles
from nmt.search import SEARCHES, Hypothesis, SearchRequest, parse_search
from nmt.search.request import Floats, StepRequest
from nmt.search.shortlist import Shortlist
from nmt.text.tokenizer import BOS, EOS

compiled = pytest.mark.skipif(not native.is_available(), reason="no C compiler here")
precisions = pytest.mark.parametrize("precision", native.TYPES)
VOCABULARY = 37
TINY = ModelConfig(dim=16, heads=4, ffn_dim=32, encoder_layers=2, decoder_layers=2)
VARIANTS: dict[str, dict[str, Any]] = {
    "pre": {},
    "post": {"norm_position": "post"},
    "untied": {"tie_embeddings": False},
    "rms": {"norm": "rms"},
    "rms, post": {"norm": "rms", "norm_position": "post", "tie_embeddings": False},
    "gelu": {"activation": "gelu"},
    "silu": {"activation": "silu"},
    "swiglu": {"activation": "swiglu"},
    "grouped": {"kv_heads": 2},
    "one head of keys": {"kv_heads": 1},
    "shared": {"layer_sharing": 2, "encoder_layers": 3, "decoder_layers": 5},
    "one layer": {"encoder_layers": 1, "decoder_layers": 1},
    "heads of 5": {"dim": 20},
    "heads of 17": {"dim": 34, "heads": 2},
    "heads of 48": {"dim": 96, "heads": 2, "ffn_dim": 50},
    "odd width": {"dim": 27, "heads": 3, "ffn_dim": 41, "position_encoding": "alibi"},
    "none": {"position_encoding": "none"},
    "concatenated": {"position_encoding": "sinusoidal_concatenated"},
    "learned": {"position_encoding": "learned"},
    "learned, few": {"position_encoding": "learned(max_positions=72)", "tie_embeddings": False},
    "rotary": {"position_encoding": "rotary"},
    "rotary, grouped": {"position_encoding": "rotary(base=100.0)", "kv_heads": 2, "dim": 24},
    "alibi": {"position_encoding": "alibi"},
    "alibi, 3 heads": {"position_encoding": "alibi", "dim": 36, "heads": 3},
    "t5": {"position_encoding": "t5"},
    "t5, few buckets": {
        "position_encoding": "t5(num_buckets=8, max_distance=16)",
        "norm_position": "post",
    },
    "marian": {
        "position_encoding": "sinusoidal_marian",
        "norm_position": "post",
        "norm_epsilon": 1e-6,
        "target_bos": False,
    },
    "ssru": {"decoder": "ssru", "norm_position": "post"},
    "ssru, t5, one head of keys": {"decoder": "ssru", "position_encoding": "t5", "kv_heads": 1},
    "ssru, alibi, shared": {
        "decoder": "ssru",
        "position_encoding": "alibi",
        "layer_sharing": 2,
        "decoder_layers": 3,
        "ffn_dim": 9,
    },
    "ssru, learned": {"decoder": "ssru", "position_encoding": "learned", "norm": "rms"},
    "together": {
        "position_encoding": "rotary",
        "kv_heads": 1,
        "norm_position": "post",
        "norm": "rms",
        "activation": "swiglu",
        "layer_sharing": 3,
        "encoder_layers": 4,
        "tie_embeddings": False,
        "dim": 40,
        "ffn_dim": 70,
    },
}
variants = pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)


def make(
    seed: int = 0, vocabulary: int = VOCABULARY, noise: float = 0.2, **changes: Any
) -> Transformer:
    """Return a network with noise added to all parameters, so that no bias is zero and no norm is
    the identity."""
    torch.manual_seed(seed)
    network = (
        build_model(dataclasses.replace(TINY, **changes), vocabulary).eval().requires_grad_(False)
    )
    for parameter in network.parameters():
        parameter += noise * torch.randn_like(parameter)
    return network


def weights_of(network: Transformer) -> dict[str, Floats]:
    return {name: weight.numpy() for name, weight in network.state_dict().items()}


def packed(network: Transformer, precision: str = "fp32") -> NativeModel:
    return NativeModel(network.config, weights_of(network), precision)


def sequences(seed: int, lengths: list[int], vocabulary: int = VOCABULARY) -> list[list[int]]:
    draw = np.random.default_rng(seed)
    return [draw.integers(4, vocabulary, length).tolist() for length in lengths]


@torch.inference_mode()
def uncached(
    network: Transformer, sources: list[list[int]], targets: list[list[int]]
) -> tuple[list[Floats], list[Floats]]:
    """Return log-probabilities and cross-attention at each target position, from one uncached
    forward pass."""
    batch = collate(list(zip(sources, targets, strict=True)))
    state = network.init_state(
        network.encode(batch.src_BS, batch.src_mask_BS), batch.src_mask_BS, use_cache=False
    )
    state.track_attention()
    log_p_BTV = network.logits(network.decode(batch.tgt_in_BT, state)).log_softmax(-1).numpy()
    lengths = [
        (len(source) + 1, len(target) + 1) for source, target in zip(sources, targets, strict=True)
    ]
    return (
        [log_p_BTV[i, :t] for i, (_, t) in enumerate(lengths)],
        [state.cross_attention_RTS[i, :t, :s].numpy() for i, (s, t) in enumerate(lengths)],
    )


def close(actual: Floats, expected: Floats, tolerance: float = 1e-4) -> None:
    """Compare vectors, which may be rows of a matrix, relative to their largest number."""
    scale = np.maximum(1.0, np.abs(expected).max(-1, keepdims=True))
    np.testing.assert_allclose(actual / scale, expected / scale, atol=tolerance, rtol=0)


INSTRUCTION_SETS = {
    build.name: build
    for build in (*BUILDS["x86_64"], Build("avx", "-march=x86-64-v2 -mavx -mfma", "avx fma"))
}
"""The builds of wheels, and what processors without AVX2 compile."""


LANES = {"amx": 16, "avx512": 16, "avx": 8, "sse2": 4}
"""Numbers in a vector, by the start of the name of a build."""


@functools.cache
def library_for(options: str, cache: Path) -> tuple[ctypes.CDLL | None, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CC", f"cc {options}")
        patch.setenv("XDG_CACHE_HOME", str(cache))
        if "CI" not in os.environ:  # compiles several times as fast
            patch.setattr(engine_library, "FLAGS", engine_library.FLAGS.replace("-O3", "-O0"))
        return native.compiled_library.__wrapped__()


@pytest.fixture
def instruction_set(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Replace the engine with one compiled for this instruction set; "all" keeps that of this
    processor."""
    if request.param == "all":
        return
    build = INSTRUCTION_SETS[request.param]
    needed = set(build.cpu_flags.split())
    if platform.machine() != "x86_64" or not needed <= set(engine_library.cpu_flags().split()):
        pytest.skip("this processor lacks the instructions")
    # The directory is the same for all workers.
    library = library_for(build.options, tmp_path_factory.getbasetemp().parent)
    monkeypatch.setattr(native, "compiled_library", lambda: library)
    vector = next(name for name in LANES if build.name.startswith(name))
    assert native.library().lanes() == LANES[vector]


def instruction_sets(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that runs with the engine for this processor and for every instruction set."""
    names = ["all", *(pytest.param(name, marks=pytest.mark.slow) for name in INSTRUCTION_SETS)]
    marked = pytest.mark.parametrize("instruction_set", names, indirect=True)(test)
    return compiled(pytest.mark.usefixtures("instruction_set")(marked))


@compiled
@variants
def test_scores_equal_pytorch(changes: dict[str, Any]) -> None:
    network = make(**changes)
    sources, targets = sequences(1, [70, 1, 7, 16, 33]), sequences(2, [5, 70, 0, 17, 1])
    log_probs, attention = uncached(network, sources, targets)
    actual = packed(network).score(sources, targets)
    for score, target, log_p_TV, attention_TS in zip(
        actual, targets, log_probs, attention, strict=True
    ):
        close(np.array(score.log_probs), log_p_TV[np.arange(len(target) + 1), [*target, EOS]])
        close(score.attention_TS, attention_TS, 2e-5)  # of two layers, it is that of the last one


@compiled
@variants
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_log_probs_are_the_sums_of_scores(changes: dict[str, Any], precision: str) -> None:
    model = packed(make(**changes), precision)
    longest = (model.max_positions or 150) - 1
    sources = sequences(1, [longest, 1, 7, 16, 33, 70, 2, 60, 30])
    targets = sequences(2, [5, 70, 0, 17, 1, 3, longest, 60, 0])
    expected = [sum(each.log_probs) for each in model.score(sources, targets)]
    actual = model.log_probs(sources, targets)
    # In int8, the keys and values of `score` are bf16.
    tolerance = 1e-5 if precision == "fp32" else 2e-2
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=1e-3)
    alone = [model.log_probs([s], [t])[0] for s, t in zip(sources, targets, strict=True)]
    np.testing.assert_allclose(alone, actual, rtol=1e-6)


@compiled
def test_log_probs_check_token_ids_and_positions() -> None:
    model = packed(make())
    with pytest.raises(ValueError, match="token ids must be between"):
        model.log_probs([[4]], [[model.vocab_size]])
    with pytest.raises(ValueError, match="token ids must be between"):
        model.log_probs([[4]], [[-1]])
    learned = packed(make(position_encoding="learned(max_positions=8)"))
    assert len(learned.log_probs([[4]], [[5] * 7])) == 1
    with pytest.raises(UsageError, match="8 learned positions"):
        learned.log_probs([[4]], [[5] * 8])


@compiled
@variants
def test_reordered_dropped_and_repeated_rows_keep_their_histories(changes: dict[str, Any]) -> None:
    network = make(**changes)
    check_rows(
        network,
        packed(network),
        [9, 1, 21],
        [[0, 1, 2], [2, 0, 0, 1], [3, 1, 1, 0, 2], [4, 2], [1, 1, 0]] * 2,
    )


def check_rows(
    network: Transformer,
    model: NativeModel,
    lengths: list[int],
    parents: list[list[int]],
    tolerance: float = 4e-5,  # float32 on either side differs from float64 by up to 2e-5
    reference: Callable[..., tuple[list[Floats], list[Floats]]] = uncached,
) -> None:
    """Compare all log-probabilities and the attention of every step with those of an uncached
    pass."""
    sources = sequences(3, lengths, model.vocab_size)
    state = model.init_search_state([[*source, EOS] for source in sources], track_attention=True)
    draw = np.random.default_rng(4)
    histories: list[tuple[int, list[int]]] = [(i, []) for i in range(len(sources))]
    for step, parents_R in enumerate(parents):
        if step and max(parents_R) >= len(histories):
            parents_R = [parent % len(histories) for parent in parents_R]
        tokens_R = (
            np.full(len(parents_R), BOS)
            if not step
            else draw.integers(4, model.vocab_size, len(parents_R))
        )
        histories = [
            (histories[parent][0], [*histories[parent][1], token])
            for parent, token in zip(parents_R, tokens_R.tolist(), strict=True)
        ]
        result = state.step(StepRequest(tokens_R, np.array(parents_R), 0, all_log_probs=True))
        log_probs, attention = reference(
            network, [sources[i] for i, _ in histories], [ids[1:] for _, ids in histories]
        )
        close(result.log_p_RV, np.stack([log_probs_TV[-1] for log_probs_TV in log_probs]))
        expected_RS = np.zeros_like(state.attention_RS)
        is_source_RS = np.zeros(expected_RS.shape, bool)
        for row, (source, _) in enumerate(histories):
            length = len(sources[source]) + 1
            expected_RS[row, :length] = attention[row][-1]
            is_source_RS[row, :length] = True
        close(state.attention_RS, expected_RS, tolerance)
        assert not state.attention_RS[~is_source_RS].any()


@instruction_sets
def test_scores_and_histories_equal_pytorch_on_every_instruction_set() -> None:
    test_scores_equal_pytorch(VARIANTS["together"])
    test_reordered_dropped_and_repeated_rows_keep_their_histories(VARIANTS["together"])


@compiled
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_attention_with_large_scores_is_accurate(sign: float) -> None:
    network = make(kv_heads=2)
    for (
        name,
        parameter,
    ) in network.named_parameters():  # scores of about 12 * 12 * 4 / 2 with small differences
        if name.endswith((".self_attention.qkv.weight", ".cross_attention.q.weight")):
            parameter[:16] = 0.0
        if name.endswith((".self_attention.qkv.weight", ".cross_attention.kv.weight")):
            parameter[-16:-8] *= 0.1
        if name.endswith((".self_attention.qkv.bias", ".cross_attention.q.bias")):
            parameter[:16] = 12.0
        if name.endswith((".self_attention.qkv.bias", ".cross_attention.kv.bias")):
            parameter[-16:-8] = sign * 12.0
    check_rows(network, packed(network), [9, 1, 21], [[0, 1, 2], [2, 0, 0, 1], [3, 1, 1]], 1e-3)


@pytest.mark.slow
@instruction_sets
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 95, 96, 97, 100, 193])
def test_any_number_of_rows_is_computed(rows: int) -> None:
    network = make()
    draw = np.random.default_rng(rows)
    parents = [draw.integers(0, high, rows).tolist() for high in (3, rows)]
    check_rows(network, packed(network), [120, 3, 95], parents, reference=remembered)


def remembered(_: Transformer, *sequences: list[list[int]]) -> tuple[list[Floats], list[Floats]]:
    """Return `uncached` of `make()`, computed once for all instruction sets."""
    return _remembered(*(tuple(map(tuple, each)) for each in sequences))


@functools.cache
def _remembered(*sequences: tuple[tuple[int, ...], ...]) -> tuple[list[Floats], list[Floats]]:
    sources, targets = ([*map(list, each)] for each in sequences)
    return uncached(make(), sources, targets)


@compiled
@pytest.mark.parametrize("vocabulary", [5, 511, 512, 513, 700, 1030])
def test_any_vocabulary_is_computed(vocabulary: int) -> None:
    network = make(vocabulary=vocabulary)
    check_rows(network, packed(network), [4, 9], [[0, 0, 1], [1, 0, 2]])


@compiled
@pytest.mark.parametrize("vocabulary", [5, 130, 513, 1030])
@pytest.mark.parametrize("k", [1, 2, 8, 40, 300])
def test_best_tokens_exclude_banned_tokens(vocabulary: int, k: int) -> None:
    model, draw = packed(make(vocabulary=vocabulary)), np.random.default_rng(k)
    rows, allowed = 7, min(k, vocabulary)
    banned_RX = draw.integers(-1, vocabulary, (rows, 4))
    banned_RX[0], banned_RX[1, 1:] = -1, -1
    gather_RP = draw.integers(0, vocabulary, (rows, 5))
    gather_RP[2, 0], gather_RP[3, 0] = vocabulary - 1, 0
    gather_RP[4, 0] = banned_RX[4, 0] = 3
    request = StepRequest(
        np.full(rows, BOS), np.zeros(rows, np.int64), k, banned_RX, gather_RP, all_log_probs=True
    )
    result = model.init_search_state([[4, 4, EOS]]).step(request)
    np.testing.assert_allclose(np.exp(result.log_p_RV.astype(np.float64)).sum(1), 1, atol=1e-5)
    np.testing.assert_array_equal(
        result.gathered_log_p_RP, np.take_along_axis(result.log_p_RV, gather_RP, 1)
    )
    assert result.tokens_RK.shape == result.log_p_RK.shape == (rows, allowed)
    for log_p_V, banned_X, log_p_K, tokens_K in zip(
        result.log_p_RV, banned_RX, result.log_p_RK, result.tokens_RK, strict=True
    ):
        log_p_V[banned_X[banned_X >= 0]] = -np.inf
        order = np.argsort(-log_p_V, kind="stable")[:allowed]
        np.testing.assert_array_equal(log_p_K, log_p_V[order])
        np.testing.assert_array_equal(tokens_K, order)


@instruction_sets
@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_candidates_restrict_the_output_layer(precision: str) -> None:
    """Probabilities are those of all tokens, normalized over the candidates of each sentence."""
    vocabulary, draw = 700, np.random.default_rng(0)
    network = make(vocabulary=vocabulary)
    sources = [[*source, EOS] for source in sequences(1, [5, 1, 9], vocabulary)]
    counts = [300, 1, 600]
    candidates = [np.sort(draw.choice(vocabulary, count, replace=False)) for count in counts]
    rows = np.array([0, 0, 1, 1, 2, 2])
    request = StepRequest(
        np.full(6, BOS),
        rows,
        20,
        banned_RX=np.stack([candidates[row][:1] for row in rows]),
        gather_RP=draw.integers(0, vocabulary, (6, 50)),
        all_log_probs=True,
    )
    model = packed(network, precision)
    unrestricted = model.init_search_state(sources).step(request).log_p_RV
    models: list[Any] = [model]
    if precision == "fp32":
        models.append(TorchModel([network]))
    for restricted in models:
        result = restricted.init_search_state(sources, candidates=candidates).step(request)
        for row, sentence in enumerate(rows):
            ids = candidates[sentence]
            log_p_C = unrestricted[row, ids].astype(np.float64)
            expected_V = np.full(vocabulary, -np.inf)
            expected_V[ids] = log_p_C - np.logaddexp.reduce(log_p_C)
            np.testing.assert_allclose(result.log_p_RV[row], expected_V, atol=2e-5)
            gathered = expected_V[request.gather_RP[row]]
            np.testing.assert_allclose(result.gathered_log_p_RP[row], gathered, atol=2e-5)
            allowed_V = expected_V.copy()
            allowed_V[request.banned_RX[row]] = -np.inf
            best = np.sort(allowed_V)[::-1][:20]
            np.testing.assert_allclose(result.log_p_RK[row], best, atol=2e-5)
            possible = result.log_p_RK[row] > -np.inf
            np.testing.assert_allclose(
                allowed_V[result.tokens_RK[row]][possible], best[possible], atol=2e-5
            )


@compiled
@pytest.mark.parametrize("spec", ["greedy", "beam(beam_size=3, top_beams=3)"])
def test_ensembles_with_a_shortlist_score_as_with_pytorch(spec: str) -> None:
    """Each model is normalized over the candidates before the probabilities are averaged."""
    networks = [make(seed) for seed in (1, 2, 3)]
    sources = [[*source, EOS] for source in sequences(1, [5, 1, 9])]
    tokens = np.arange(VOCABULARY)
    shortlist = Shortlist.of(tokens, tokens[::-1], VOCABULARY, EOS + 1, max_translations=1)
    request = SearchRequest(sources, np.full(3, 12), BOS, EOS, shortlist=shortlist)
    find = parse_search(spec)
    actual = find(NativeEnsemble([packed(network) for network in networks]), request)
    expected = find(TorchModel(networks), request)
    for ours, theirs in zip(actual, expected, strict=True):
        assert [h.ids for h in ours] == [h.ids for h in theirs]
        log_probs = [h.log_prob for h in theirs]
        assert [h.log_prob for h in ours] == pytest.approx(log_probs, abs=1e-3)


@compiled
@pytest.mark.parametrize("k", [5, 300])
@pytest.mark.parametrize("kind", ["native", "ensemble"])
def test_ties_are_ordered_by_token_id(kind: str, k: int) -> None:
    network = make(vocabulary=1100)
    network.output_weight_VD[:] = network.output_weight_VD[5]
    network.output_weight_VD[[130, 600, 1099]] *= 0.5
    model = packed(network)
    stepped = (model if kind == "native" else NativeEnsemble([model, model])).init_search_state(
        [[5, EOS]]
    )
    first = stepped.step(StepRequest(np.array([BOS]), np.array([0]), k, all_log_probs=True))
    order = np.argsort(-first.log_p_RV[0], kind="stable")[:k]
    assert first.tokens_RK[0].tolist() == order.tolist()
    assert len(set(first.log_p_RK[0])) < k


@compiled
@precisions
def test_concurrent_states_are_independent_and_their_memory_is_reused(precision: str) -> None:
    model = packed(make(), precision)
    sources = [[[*source, EOS] for source in sequences(seed, [9, 4, 30])] for seed in (1, 2)]
    tokens = [sequences(seed, [12, 12, 12]) for seed in (3, 4)]

    def run(states: list[Any]) -> list[list[Floats]]:
        actual: list[list[Floats]] = [[] for _ in states]
        for t in range(12):
            for number, state in enumerate(states):
                request = StepRequest(
                    np.array(tokens[number])[:, t], np.arange(3), 0, all_log_probs=True
                )
                actual[number].append(state.step(request).log_p_RV)
        return actual

    together = run([model.init_search_state(each) for each in sources])
    assert len(model.free_states) == 2
    again = [model.init_search_state(each) for each in reversed(sources)][::-1]
    assert not model.free_states
    np.testing.assert_array_equal(run(again), together)
    del again
    for number in range(2):
        tokens[0] = tokens[number] if number else tokens[0]
        np.testing.assert_array_equal(
            run([model.init_search_state(sources[number])])[0], together[number]
        )


def product(x_RI: Floats, weight_OI: Floats, precision: str) -> Floats:
    """Return xWᵀ of the rounded factors."""
    if precision == "bf16":
        x_RI, weight_OI = (
            torch.from_numpy(each).bfloat16().double().numpy() for each in (x_RI, weight_OI)
        )
    if precision != "int8":
        return x_RI.astype(np.float64) @ weight_OI.astype(np.float64).T
    max_R1, max_O1 = (np.abs(each).max(1, keepdims=True) for each in (x_RI, weight_OI))
    scale_O1 = np.where(max_O1 > 0, max_O1 / np.float32(127), np.float32(1))
    times_R1 = np.divide(np.float32(127), max_R1, out=np.zeros_like(max_R1), where=max_R1 > 0)
    whole_RI, whole_OI = (
        np.rint(x_RI * times_R1).astype(np.int64),
        np.rint(weight_OI / scale_O1).astype(np.int64),
    )
    return (whole_RI @ whole_OI.T) * scale_O1.T.astype(np.float64) * (max_R1 / np.float32(127))


def factors(rows: int, inputs: int, outputs: int) -> tuple[Floats, Floats, Floats]:
    """Return x, W with rows of different magnitudes, and a bias."""
    draw = np.random.default_rng(rows + inputs + outputs)
    weight_OI = draw.standard_normal((outputs, inputs), np.float32)
    weight_OI *= 10 ** np.linspace(-3, 3, outputs, dtype=np.float32)[:, None]
    return (
        draw.standard_normal((rows, inputs), np.float32),
        weight_OI,
        draw.standard_normal(outputs, np.float32),
    )


@instruction_sets
@precisions
@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [(4, 1), (192, 64), (20, 65), (768, 191), (64, 1000), (1, 3), (7, 66), (33, 130)],
)
def test_products_match_the_precision(precision: str, inputs: int, outputs: int) -> None:
    x_RI, weight_OI, bias_O = factors(40, inputs, outputs)
    product_RO = product(x_RI, weight_OI, precision)
    magnitude_O = np.abs(weight_OI).max(1) * math.sqrt(inputs) + 1
    # Sums of int8 are exact; in bf16 the processor rounds as it likes while it adds.
    tolerance = {"fp32": 1e-5, "bf16": 1e-5, "int8": 1e-6}[precision]
    for bias in (None, bias_O):
        matrix = Matrix(weight_OI, bias, precision)
        expected_RO = product_RO if bias is None else product_RO + bias
        for rows in (1, 2, 3, 4, 5, 6, 7, 11, 12, 40):
            actual_RO = matrix.multiply(x_RI[:rows])
            np.testing.assert_allclose(
                actual_RO / magnitude_O, expected_RO[:rows] / magnitude_O, atol=tolerance, rtol=0
            )


@instruction_sets
def test_largest_products_of_bytes_do_not_overflow() -> None:
    signs = np.tile(np.array(list(itertools.product((-1, 1), repeat=4)), np.float32), 64)
    np.testing.assert_allclose(
        Matrix(signs, None, "int8").multiply(signs), signs @ signs.T, rtol=1e-6, atol=1e-4
    )


@instruction_sets
@precisions
def test_a_rows_product_does_not_depend_on_the_number_of_rows(precision: str) -> None:
    x_RI, weight_OI, bias_O = factors(29, 47, 100)
    x_RI[3] *= 1000
    matrix = Matrix(weight_OI, bias_O, precision)
    together_RO = matrix.multiply(x_RI)
    for first in range(29):
        for rows in (1, 2, 3, 4, 5, 7):
            np.testing.assert_array_equal(
                matrix.multiply(x_RI[first : first + rows]), together_RO[first : first + rows]
            )


@instruction_sets
@precisions
@pytest.mark.parametrize(
    "bits", [0x7F800000, 0x7FC00000, 0xFFC00000, 0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF]
)
def test_nan_and_infinity_propagate_in_products(precision: str, bits: int) -> None:
    x_RI, weight_OI, bias_O = factors(7, 32, 70)
    broken_RI, broken_OI = x_RI.copy(), weight_OI.copy()
    broken_RI.view(np.uint32)[2, 17] = bits  # the first one is infinity, and all others are NaN
    broken_OI.view(np.uint32)[5, 9] = bits
    finite_RO = np.isfinite(Matrix(weight_OI, bias_O, precision).multiply(broken_RI))
    assert finite_RO.all(1).tolist() == [True, True, False, True, True, True, True]
    assert not finite_RO[2].any()
    finite_RO = np.isfinite(Matrix(broken_OI, bias_O, precision).multiply(x_RI))
    assert not finite_RO[:, 5].any()
    assert np.delete(finite_RO, 5, 1).all()


@instruction_sets
@precisions
def test_product_of_zeros_is_the_bias(precision: str) -> None:
    _, weight_OI, bias_O = factors(1, 32, 70)
    zero_RI = np.zeros((3, 32), np.float32)
    np.testing.assert_array_equal(
        Matrix(weight_OI, bias_O, precision).multiply(zero_RI), [bias_O] * 3
    )
    assert not Matrix(np.zeros_like(weight_OI), None, precision).multiply(zero_RI + 1).any()


@pytest.mark.slow
@compiled
@pytest.mark.parametrize(("precision", "tolerance"), [("bf16", 0.1), ("int8", 0.3)])
@variants
def test_low_precision_is_accurate(
    changes: dict[str, Any], precision: str, tolerance: float
) -> None:
    network = make(noise=0.05, **changes)
    sources, targets = sequences(1, [70, 1, 7]), sequences(2, [5, 70, 0])
    scores = [
        model.score(sources, targets) for model in (packed(network), packed(network, precision))
    ]
    for exact, rounded in zip(*scores, strict=True):
        difference_T = np.array(exact.log_probs) - rounded.log_probs
        assert difference_T.any()
        assert np.sqrt((difference_T**2).mean()) < tolerance * max(
            1.0, float(np.std(exact.log_probs))
        )


def search_results(
    spec: str, model: Any, sources: list[list[int]], limit: int = 12
) -> list[list[Hypothesis]]:
    length_B = np.full(len(sources), limit)
    requested = [[*source, EOS] for source in sources]
    return parse_search(spec)(
        model, SearchRequest(requested, length_B, BOS, EOS, suppressed_ids=(0, 1, 2))
    )


@compiled
@precisions
@pytest.mark.parametrize("name", [name for name in SEARCHES if name != "mbr"])
def test_results_do_not_depend_on_the_batch(name: str, precision: str) -> None:
    model = packed(make(vocabulary=600, position_encoding="t5"), precision)
    sources = sequences(5, [40, 1, 9, 33, 5, 64, 18, 2, 7, 100] * 3, 600)
    spec = {
        "beam": "beam(beam_size=5, top_beams=5, coverage_penalty=0.2)",
        "sample": "sample(n_best=5)",
    }.get(name, name)
    together = search_results(spec, model, sources)
    for some in (slice(0, 1), slice(9, 10), slice(3, 12), slice(30, None, -1)):
        assert search_results(spec, model, sources[some]) == together[some]


@pytest.mark.slow
@compiled
@precisions
def test_results_do_not_depend_on_the_number_of_threads(precision: str) -> None:
    network = make(vocabulary=600)
    sources = [Source(ids) for ids in sequences(5, [*range(1, 60)], 600)]
    pairs = [source.ids for source in sources], sequences(6, [*range(59)], 600)

    def engine(threads: int) -> BatchEngine:
        return BatchEngine(lambda precision: packed(network, precision), precision, str, threads)

    progress: list[int] = []
    one, several = engine(1), engine(3)
    expected = one.search(sources, parse_search("beam(beam_size=4, top_beams=2)"), lambda _: None)
    assert (
        several.search(sources, parse_search("beam(beam_size=4, top_beams=2)"), progress.append)
        == expected
    )
    assert sum(progress) == len(sources)
    for score, other in zip(one.score(*pairs), several.score(*pairs), strict=True):
        assert score.log_probs == other.log_probs
        np.testing.assert_array_equal(score.attention_TS, other.attention_TS)


@compiled
@precisions
@pytest.mark.parametrize(
    "where", ["embeddings.shared", "decoder.0.feed_forward.up.weight", "encoder_norm.weight"]
)
@pytest.mark.parametrize("spec", ["greedy", "beam", "diverse", "constrained", "sample"])
def test_search_with_nan_weights_terminates(where: str, precision: str, spec: str) -> None:
    network = make()
    weights = {name: weight.copy() for name, weight in weights_of(network).items()}
    weights[where][..., 3] = np.nan
    model = NativeModel(network.config, weights, precision)
    result = model.init_search_state([[5, EOS]]).step(
        StepRequest(np.array([BOS]), np.array([0]), 3, all_log_probs=True)
    )
    assert np.isnan(result.log_p_RV).all()
    assert np.isnan(result.log_p_RK).all()
    assert result.tokens_RK.tolist() == [[0, 1, 2]]
    done = threading.Event()

    def run() -> None:
        search_results(spec, model, [[5, 6], [7]])
        done.set()

    threading.Thread(target=run, daemon=True).start()
    assert done.wait(20)


def test_a_token_that_is_impossible_in_all_models_is_impossible_in_the_ensemble() -> None:
    log_probs = [np.log(np.array(each, np.float32)) for each in ([0.5, 0.25], [0.125, 0.75])]
    log_probs = [np.append(each, np.float32(-np.inf)) for each in log_probs]
    assert np.exp(mean_log_prob(log_probs)).tolist() == pytest.approx([0.3125, 0.5, 0.0])


@compiled
def test_nan_token_ranks_first() -> None:
    network = make(vocabulary=700, tie_embeddings=False)
    network.output_weight_VD[600, 3] = math.nan
    result = (
        packed(network)
        .init_search_state([[5, EOS]])
        .step(StepRequest(np.array([BOS]), np.array([0]), 3))
    )
    assert result.tokens_RK[0, 0] == 600
    assert np.isnan(result.log_p_RK).all()


@compiled
@pytest.mark.parametrize("bad_id", [-1, VOCABULARY, 2**40])
def test_ids_outside_the_vocabulary_are_rejected(bad_id: int) -> None:
    model = packed(make())
    with pytest.raises(ValueError, match="source token ids must be between 0 and 36"):
        model.init_search_state([[5, bad_id, EOS]])
    state = model.init_search_state([[5, EOS]])
    one_R, zero_R, bad_R = np.array([BOS]), np.array([0]), np.array([bad_id])
    with pytest.raises(ValueError, match="token ids must be between 0 and 36"):
        state.step(StepRequest(bad_R, zero_R, 1))
    with pytest.raises(ValueError, match="parents must be between 0 and 0"):
        state.step(StepRequest(one_R, bad_R, 1))
    with pytest.raises(ValueError, match="token ids to gather must be between 0 and 36"):
        state.step(StepRequest(one_R, zero_R, 1, gather_RP=bad_R[:, None]))
    with pytest.raises(ValueError, match="token ids to gather must be between 0 and 36"):
        model.score([[5]], [[bad_id, 6]])


@compiled
def test_arrays_of_another_shape_or_type_are_rejected() -> None:
    state = packed(make()).init_search_state([[5, EOS], [6, EOS]])
    two_R = np.array([0, 1])
    mistakes = [
        {"tokens_R": two_R[:, None]},
        {"tokens_R": two_R.astype(np.float64)},
        {"parents_R": two_R[:1]},
        {"parents_R": np.array([0, 1, 1])},
        {"parents_R": two_R[:, None]},
        {"banned_RX": two_R},
        {"banned_RX": two_R[:1, None]},
        {"banned_RX": two_R[None]},
        {"banned_RX": np.zeros((2, 1))},
        {"gather_RP": np.array(0)},
        {"gather_RP": np.zeros((3, 1), np.int64)},
        {"gather_RP": np.zeros((2, 1, 1), np.int64)},
    ]
    arrays = {"tokens_R": two_R, "parents_R": two_R, "k": 2}
    for mistake in mistakes:
        with pytest.raises(ValueError, match="must be integers of shape"):
            state.step(StepRequest(**(arrays | mistake)))
    # These exclude no token.
    state.step(StepRequest(**arrays, banned_RX=np.array([[-(2**31)], [2**31 - 1]])))
    matrix = Matrix(np.ones((3, 2), np.float32), None, "fp32")
    with pytest.raises(ValueError, match=r"expected an array of shape \(1, 2\)"):
        matrix.multiply(np.ones((1, 3), np.float32))
    with pytest.raises(ValueError, match=r"expected an array of shape \(3,\)"):
        Matrix(np.ones((3, 2), np.float32), np.ones(2, np.float32), "fp32")


@compiled
def test_arrays_of_any_layout_are_read() -> None:
    network = make()
    tokens_R = np.array([5, 9, 6, 9])
    state = packed(network).init_search_state([[5, EOS], [6, EOS]])
    expected = state.step(StepRequest(np.array([5, 6]), np.array([0, 1]), 3))
    state = packed(network).init_search_state([[5, EOS], [6, EOS]])
    actual = state.step(
        StepRequest(tokens_R[::2].astype(np.int16), np.array([1, 0], np.uint8)[::-1], 3)
    )
    np.testing.assert_array_equal(actual.log_p_RK, expected.log_p_RK)
    bytes_OI = np.eye(3, dtype=np.float64)[:, ::-1]
    np.testing.assert_array_equal(Matrix(bytes_OI, None, "fp32").multiply(bytes_OI), np.eye(3))


@pytest.mark.parametrize(
    "changes",
    [
        {"kv_heads": 3},
        {"heads": 16, "position_encoding": "rotary"},
        {"position_encoding": "t5(num_buckets=8, max_distance=2)"},
        {"position_encoding": "t5(max_distance=10000000)"},
        {"position_encoding": "t5(max_distance='far')"},
    ],
)
def test_networks_with_invalid_options_are_left_to_pytorch_which_rejects_them(
    changes: dict[str, Any],
) -> None:
    config = dataclasses.replace(TINY, **changes)
    assert not native.supports(config)
    with pytest.raises(ValueError, match="does not support this network"):
        NativeModel(config, {}, "fp32")
    with pytest.raises(ConfigError):
        build_model(config, VOCABULARY)


@compiled
@pytest.mark.parametrize("precision", native.TYPES)
@pytest.mark.parametrize("encoding", ["rotary", "learned", "t5"])
def test_quantized_weights_are_those_they_stand_for(precision: str, encoding: str) -> None:
    network = make(position_encoding=encoding)
    stored = quantization.quantize(weights_of(network))
    restored = quantization.dequantize(stored)
    assert any(weight.dtype == np.int8 for weight in stored.values())
    scores = [
        NativeModel(network.config, weights, precision).log_probs([[5, 6, 7]], [[8, 9]])
        for weights in (stored, restored)
    ]
    assert scores[0] == scores[1]


@compiled
def test_weights_of_another_network_are_rejected() -> None:
    network = make()
    weights = weights_of(network)
    name = "decoder.1.cross_attention.kv.weight"
    mistakes = (
        weights | {name: weights[name][:-1]},
        weights | {"more": weights[name]},
        {other: weight for other, weight in weights.items() if other != name},
        {},
    )
    for mistake in mistakes:
        with pytest.raises(ValueError, match="do not match the config"):
            NativeModel(network.config, mistake, "fp32")
    with pytest.raises(ValueError, match="do not match the config"):
        NativeModel(dataclasses.replace(network.config, activation="swiglu"), weights, "fp32")


@compiled
@pytest.mark.parametrize(
    ("vocabulary", "dim"), [(VOCABULARY - 1, 16), (VOCABULARY + 1, 16), (VOCABULARY, 20)]
)
def test_mismatched_weights_are_a_checkpoint_error(
    vocabulary: int, dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ModelFiles(Path("run/step-1"), Path("run"), Config(model=TINY), range(VOCABULARY), 9, 1)
    fitting, other = weights_of(make()), weights_of(make(vocabulary=vocabulary, dim=dim))

    def store(weights: dict[str, Floats]) -> None:
        monkeypatch.setattr(checkpoint, "read_stored_weights", lambda path: weights)

    store(fitting)
    assert isinstance(load_engine([files], "cpu", "fp32", str).model, NativeModel)
    store(other)
    with pytest.raises(
        CheckpointError, match=r"the weights in run/step-1 do not fit run/config\.yaml"
    ):
        load_engine([files], "cpu", "fp32", str)


@pytest.mark.parametrize(
    "change",
    [
        {"position_encoding": "shaw"},
        {"attention_score": "additive"},
        {"attention_window": 4},
        {"arch": "rnn"},
    ],
)
def test_unsupported_networks_use_pytorch(change: dict[str, Any]) -> None:
    config = dataclasses.replace(TINY, **change)
    assert not native.supports(config)
    torch.manual_seed(0)
    network = build_model(config, VOCABULARY).eval()
    engine = engine_from_models([network], "cpu", "auto", str)
    assert isinstance(engine.model, TorchModel)
    before = engine.search([Source([5, 6])], parse_search("beam"), lambda _: None)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    assert engine.search([Source([5, 6])], parse_search("beam"), lambda _: None) == before


def test_every_model_option_is_known() -> None:
    """A new option must be computed by engine.c or checked by `supports`, and so in every export
    and the model card."""
    computed = (
        "dim heads ffn_dim encoder_layers decoder_layers norm_position kv_heads layer_sharing"
        " tie_embeddings norm_epsilon target_bos"
    )
    checked = "arch decoder norm activation position_encoding attention_score attention_window"
    others = "dropout attention_dropout activation_dropout output_bias source_eos"
    assert {field.name for field in dataclasses.fields(ModelConfig)} == {
        *f"{computed} {checked} {others}".split()
    }


@compiled
@pytest.mark.parametrize("changes", [{}, *VARIANTS.values()])
def test_supported_networks_use_the_native_engine(changes: dict[str, Any]) -> None:
    assert native.supports(dataclasses.replace(TINY, **changes))


TRANSLATION = """
import logging, sys
import torch
from nmt.core.config import ModelConfig
from nmt.engines import Source
from nmt.engines import native
from nmt.engines.load import engine_from_models
from nmt.model.build import build_model, check_model, count_parameters, max_positions
from nmt.search import parse_search
torch.manual_seed(0)
config = ModelConfig(dim=16, heads=4, ffn_dim=32, encoder_layers=1, decoder_layers=1)
engines = [engine_from_models([build_model(config, 37).eval()], "cpu", "fp32", str) for _ in range(2)]
found = [engine.search([Source([5, 6, 7])], parse_search("beam"), lambda _: None) for engine in engines]
print(native.is_available(), type(engines[0].model).__name__, len(found[0][0]))
"""  # noqa: E501
NATIVE, PYTORCH = "True NativeModel 1", "False TorchModel 1"
COMPILATION = "from nmt.engines import native; print(native.is_available())"


@pytest.fixture
def translated(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[str, str]]]:
    """A function that runs `TRANSLATION` as if the engine were not loaded yet, and returns its
    output and log."""

    def run(cache: Path, **environment: str) -> tuple[str, str]:
        for name, value in {"XDG_CACHE_HOME": str(cache), **environment}.items():
            monkeypatch.setenv(name, value)
        native.compiled_library.cache_clear()
        capfd.readouterr()
        with warnings.catch_warnings(action="error"):
            exec(TRANSLATION, {})
        output, logged = capfd.readouterr()
        return output.strip(), logged.strip()

    yield run
    native.compiled_library.cache_clear()


@compiled
@pytest.mark.slow
def test_engine_is_compiled_once_even_by_concurrent_processes(
    tmp_path: Path, translated: Callable[..., tuple[str, str]]
) -> None:
    compiler = {"CC": "cc -O0"}  # quick to compile
    variables = os.environ | compiler | {"XDG_CACHE_HOME": str(tmp_path)}
    several = [
        subprocess.Popen(
            [sys.executable, "-c", COMPILATION], env=variables, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    assert [process.communicate()[0] for process in several] == ["True\n"] * 2
    (library,) = tmp_path.glob("nmt/engine/*.so")
    written = library.stat().st_mtime_ns
    assert translated(tmp_path, **compiler) == (NATIVE, "")
    assert library.stat().st_mtime_ns == written
    assert library.stat().st_mode & 0o777 == 0o755
    intact = library.read_bytes()
    library.unlink()  # this process has mapped it
    library.write_bytes(intact[: len(intact) // 2])  # loading it would end the process
    assert (
        subprocess.check_output([sys.executable, "-c", COMPILATION], env=variables, text=True)
        == "True\n"
    )
    assert library.read_bytes() == intact


@compiled
@pytest.mark.slow
def test_a_compiler_with_a_wrapper_and_options(
    tmp_path: Path, translated: Callable[..., tuple[str, str]]
) -> None:
    assert translated(tmp_path, CC="env cc -O0") == (NATIVE, "")


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["no-such-compiler", "false", "true", "cc 'unended"])
def test_without_a_working_compiler_pytorch_is_used_and_logged_once(
    compiler: str, tmp_path: Path, translated: Callable[..., tuple[str, str]]
) -> None:
    output, logged = translated(tmp_path, CC=compiler)
    assert output == PYTORCH
    assert len(logged.splitlines()) == 1
    assert "the native engine is not available" in logged
    assert not list(tmp_path.glob("nmt/engine/*.so"))


@pytest.mark.slow
def test_without_a_cache_and_a_temporary_directory_pytorch_is_used(
    tmp_path: Path, translated: Callable[..., tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    with monkeypatch.context() as patch:  # pytest itself uses temporary files
        patch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
        output, logged = translated(tmp_path / "file")
    assert output == PYTORCH
    assert len(logged.splitlines()) == 1


@pytest.mark.slow
def test_engine_can_be_disabled(tmp_path: Path, translated: Callable[..., tuple[str, str]]) -> None:
    assert translated(tmp_path, NMT_ENGINE="0") == (PYTORCH, "")


def test_without_a_home_directory_engine_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("XDG_CACHE_HOME", "CC", "NMT_ENGINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert native.compiled_library.__wrapped__()[0] is None
    assert describe_directory(paths.cache_dir) == "unknown: there is no home directory"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (
            "echo 'In file included from a.c:1:'; echo 'a.h:2: fatal error: no math.h'; exit 1",
            "the C compiler failed: a.h:2: fatal error: no math.h",
        ),
        (
            "echo 'ld: cannot find -lm'; echo 'collect2: error: ld returned 1'; exit 1",
            "the C compiler failed: ld: cannot find -lm",
        ),
        ("exit 3", "the C compiler failed: exit code 3"),
        ("exec sleep 20", "the C compiler took more than 0.2 seconds"),
        ("exit 0", "the compiler wrote no file"),
    ],
)
def test_reason_of_a_failed_compiler_is_reported(
    script: str, reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiler = tmp_path / "compiler.sh"
    compiler.write_text(f"exec >&2; {script}\n")
    monkeypatch.setenv("CC", shlex.join([str(shutil.which("sh")), str(compiler)]))
    if "sleep" in script:
        monkeypatch.setattr(engine_library, "COMPILE_SECONDS", 0.2)
    assert native.compiled_library.__wrapped__() == (None, reason)


def test_cache_key_depends_on_compiler_source_and_processor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    copy = tmp_path / "engine.c"
    copy.write_text(engine_library.SOURCE.read_text())
    compiler = [
        str(shutil.which("sh")),
        "-c",
        'while [ "$1" != -o ]; do shift; done; echo made > "$2"',
        "sh",
    ]

    def build_library(*options: str) -> Path:
        engine_library.engine_id.cache_clear()
        return engine_library.find_or_compile([*compiler, *options])

    first = build_library()
    assert first.read_text() == "made\n"
    assert build_library() == first
    monkeypatch.setattr(engine_library, "SOURCE", copy)
    assert build_library() == first
    copy.write_text("another")
    assert len({first, build_library(), build_library("-O2")}) == 3
    with monkeypatch.context() as patch:
        second = build_library()
        patch.setattr(engine_library, "cpu_flags", lambda: "another processor")
        assert build_library() != second
    engine_library.engine_id.cache_clear()


def test_concurrent_processes_compile_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    script = (
        f'echo >> {tmp_path}/compilations; sleep 0.1; while [ "$1" != -o ]; do shift; done; echo'
        ' made > "$2"'
    )
    with ThreadPoolExecutor(4) as threads:
        paths = list(
            threads.map(
                engine_library.find_or_compile, [[str(shutil.which("sh")), "-c", script, "sh"]] * 4
            )
        )
    assert paths[0].read_text() == "made\n"
    assert (tmp_path / "compilations").read_text() == "\n"
    assert {path.name for path in paths[0].parent.iterdir()} == {paths[0].name, "lock"}
    engine_library.engine_id.cache_clear()


@pytest.fixture
def fake_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A compiler that writes a line per compilation to `compilations`, and fails if there is a file
    `broken`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    script = f'''cd {tmp_path}; echo >> compilations; test ! -e broken || exit 1
        while [ "$1" != -o ]; do shift; done; echo made > "$2"'''
    engine_library.engine_id.cache_clear()
    yield [str(shutil.which("sh")), "-c", script, "sh"]
    engine_library.engine_id.cache_clear()


def num_compilations(tmp_path: Path) -> int:
    return len((tmp_path / "compilations").read_text())


def test_damaged_libraries_are_compiled_again(tmp_path: Path, fake_compiler: list[str]) -> None:
    library = engine_library.find_or_compile(fake_compiler)
    for number, damaged in enumerate(
        (b"", b"ma", b"made", b"mode\n", b"made\nmade\n", bytes(5), b"\x7fELF"), 1
    ):
        library.write_bytes(damaged)
        assert engine_library.find_or_compile(fake_compiler).read_text() == "made\n"
        assert num_compilations(tmp_path) == number + 1
        assert engine_library.find_or_compile(fake_compiler) == library
        assert num_compilations(tmp_path) == number + 1


@pytest.mark.skipif(sys.platform == "win32", reason="no permission bits")
def test_libraries_that_others_could_have_written_are_compiled_again(
    tmp_path: Path, fake_compiler: list[str]
) -> None:
    library = engine_library.find_or_compile(fake_compiler)

    def link() -> None:
        (tmp_path / "copy").write_text("made\n")
        library.unlink()
        library.symlink_to(tmp_path / "copy")

    def pipe() -> None:
        library.unlink()
        os.mkfifo(library, 0o600)

    changes: list[Callable[[], object]] = [
        lambda: library.chmod(0o775),
        lambda: library.chmod(0o757),
        link,
        pipe,
    ]
    if os.geteuid() == 0:
        changes.append(lambda: os.chown(library, 12345, 0))
    for number, change in enumerate(changes, 1):
        change()
        assert engine_library.find_or_compile(fake_compiler) == library
        assert num_compilations(tmp_path) == number + 1
        assert library.stat().st_mode & 0o777 == 0o755
        assert library.stat().st_uid == os.geteuid()
        assert not library.is_symlink()


@pytest.mark.skipif(sys.platform == "win32", reason="no permission bits")
@pytest.mark.parametrize("kind", ["a file", "others may write", "a link", "another user"])
def test_a_cache_that_cannot_be_used_is_replaced_by_a_private_directory(
    kind: str,
    tmp_path: Path,
    fake_compiler: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    library = engine_library.find_or_compile(fake_compiler)
    cache = library.parent
    if kind == "a file":
        shutil.rmtree(cache)
        cache.write_text("")
    elif kind == "others may write":
        cache.chmod(0o777)
    elif kind == "a link":
        cache.rename(tmp_path / "elsewhere")
        cache.symlink_to(tmp_path / "elsewhere")
    elif os.geteuid() == 0:
        os.chown(cache, 12345, 0)
    else:
        pytest.skip("only root can give a directory to another user")
    capfd.readouterr()
    private = engine_library.find_or_compile(fake_compiler)
    assert private.parent == tmp_path / f"tmp/nmt-engine-{os.getuid()}"
    assert private.read_text() == "made\n"
    (message,) = capfd.readouterr().err.splitlines()
    assert f"the native engine is not kept in {cache}" in message
    assert engine_library.find_or_compile(fake_compiler) == private
    assert num_compilations(tmp_path) == 2
    private.parent.chmod(0o777)  # someone else may have created it before
    with pytest.raises(PermissionError, match="others may write to it"):
        engine_library.find_or_compile(fake_compiler)


@pytest.mark.skipif(sys.platform == "win32", reason="no permission bits")
def test_groups_cannot_write_to_the_library_whatever_the_umask(
    tmp_path: Path, fake_compiler: list[str]
) -> None:
    previous = os.umask(0o002)  # common where each user has a group of their own
    try:
        library = engine_library.find_or_compile(fake_compiler)
        assert engine_library.find_or_compile(fake_compiler) == library
    finally:
        os.umask(previous)
    assert num_compilations(tmp_path) == 1
    assert library.stat().st_mode & 0o777 == library.parent.stat().st_mode & 0o777 == 0o755


def test_only_the_latest_libraries_are_kept(tmp_path: Path, fake_compiler: list[str]) -> None:
    libraries = [
        engine_library.find_or_compile([*fake_compiler, str(number)]) for number in range(12)
    ]
    for time, library in enumerate(libraries):
        if library.exists():
            os.utime(library, (time, time))
    leftover = libraries[0].parent / ".engine-killed"
    leftover.mkdir()
    os.utime(leftover, (0, 0))
    libraries.append(engine_library.find_or_compile([*fake_compiler, "another"]))
    latest = {library.name for library in libraries[-engine_library.MAX_LIBRARIES :]}
    assert {path.name for path in libraries[0].parent.iterdir()} == {*latest, "lock"}


def test_failed_compilations_are_not_remembered(tmp_path: Path, fake_compiler: list[str]) -> None:
    (tmp_path / "broken").write_text("")
    for _ in range(2):
        with pytest.raises(subprocess.SubprocessError):
            engine_library.find_or_compile(fake_compiler)
    (tmp_path / "broken").unlink()
    library = engine_library.find_or_compile(fake_compiler)
    assert num_compilations(tmp_path) == 3
    assert {path.name for path in library.parent.iterdir()} == {library.name, "lock"}


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("", "sse2"),
        ("avx sse4_2", "sse2"),
        ("avx2 fma bmi1 bmi2 f16c abm movbe", "avx2"),
        ("avx2 fma bmi1 bmi2 f16c abm movbe avx_vnni avx512f", "avx2vnni"),
        (BUILDS["x86_64"][3].cpu_flags, "avx512"),
        (BUILDS["x86_64"][2].cpu_flags, "avx512vnni"),
        (f"{BUILDS['x86_64'][1].cpu_flags} amx_tile", "avx512bf16"),
        (BUILDS["x86_64"][0].cpu_flags, "amx"),
    ],
)
def test_the_fastest_library_of_the_wheel_that_the_processor_runs_is_found(
    flags: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(engine_library, "cpu_flags", lambda: f"flags : {flags}\n")
    monkeypatch.setattr(engine_library, "SOURCE", tmp_path / "engine.c")
    assert engine_library.find_prebuilt() is None  # as in a clone
    for build in BUILDS["x86_64"]:
        (tmp_path / build.filename).touch()
    assert engine_library.find_library() == tmp_path / f"engine-{expected}.so"
    assert expected in engine_library.library_version()
    (tmp_path / f"engine-{expected}.so").unlink()
    assert engine_library.find_prebuilt() in (None, *tmp_path.glob("*.so"))
    monkeypatch.setenv("CC", "cc")
    assert engine_library.find_prebuilt() is None
    monkeypatch.delenv("CC")
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert engine_library.find_prebuilt() is None


@pytest.mark.slow
@compiled
@pytest.mark.skipif(platform.machine() != "x86_64", reason="x86 compiler options")
def test_engine_compiles_for_avx512_with_256_bit_vnni(tmp_path: Path) -> None:
    flags = [*engine_library.FLAGS.split(), "-O0", "-march=skylake-avx512", "-mavxvnni"]
    subprocess.run(
        ["cc", *flags, str(engine_library.SOURCE), "-lm", "-o", str(tmp_path / "engine.so")],
        check=True,
    )


@compiled
def test_engine_works_without_permission_for_the_matrix_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x_RI, weight_OI, bias_O = factors(40, 50, 70)
    expected = [
        Matrix(weight_OI, bias_O, precision).multiply(x_RI) for precision in ("bf16", "int8")
    ]
    copy = shutil.copy(native.library()._name, tmp_path / "engine.so")
    without_init = ctypes.CDLL(str(copy))  # `engine_init` requests the permission
    for name, (result_type, argument_types) in native.FUNCTIONS.items():
        function = getattr(without_init, name)
        function.restype, function.argtypes = result_type, argument_types
    monkeypatch.setattr(native, "library", lambda: without_init)
    assert without_init.hardware_support(native.TYPES.index("int8")) < 3
    actual = [Matrix(weight_OI, bias_O, precision).multiply(x_RI) for precision in ("bf16", "int8")]
    np.testing.assert_allclose(actual[0], expected[0], rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(actual[1], expected[1])


def test_nan_weights_are_reported() -> None:
    network = make()
    network.output_weight_VD.fill_(math.nan)
    engine = engine_from_models([network], "cpu", "fp32", str)
    for search in ("beam", "greedy", "sample"):
        with pytest.raises(NMTError, match="scores are NaN or infinite"):
            engine.search([Source([4, 5])], parse_search(search), print)


@compiled
@pytest.mark.parametrize("kind", ["native", "PyTorch"])
def test_sentences_beyond_the_learned_positions_are_rejected(kind: str) -> None:
    network = make(position_encoding="learned(max_positions=8)")
    model = packed(network) if kind == "native" else TorchModel([network])
    engine = BatchEngine(lambda precision: model, "fp32", str)

    def search(source: Source, spec: str) -> list[list[Hypothesis]]:
        return engine.search([Source([5]), source], parse_search(spec), lambda _: None)

    for length in (7, 8):
        ids = [4] * length
        inputs = [  # each has one more token than `ids`: the end token or the start token
            (Source(ids), "greedy"),
            (Source([5], prefix=ids), "greedy"),
            (Source([5], prefix=ids), "beam"),
            (Source([5], constraints=[ids]), "constrained"),
            (Source([5], prefix=ids[:3], constraints=[ids[3:5], ids[5:]]), "constrained"),
        ]
        for source, spec in inputs:
            if length == 7:
                assert search(source, spec)[1]
                continue
            with pytest.raises(
                UsageError, match=r"^9 tokens exceed the 8 learned positions of the model$"
            ) as raised:
                search(source, spec)
            assert "max_positions=9" in raised.value.hint
    with pytest.raises(UsageError, match="9 tokens exceed the 8 learned positions"):
        engine.score([[4] * 8], [[5]])
    with pytest.raises(UsageError, match="9 tokens exceed the 8 learned positions"):
        engine.score([[5]], [[4] * 8])


SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
FUZZ_STEPS = int(os.environ.get("NMT_FUZZ_STEPS", "500"))
FUZZING = """
import sys
from pathlib import Path
from nmt.engines import engine_library
engine_library.SOURCE = Path(sys.argv[1])
import engine_fuzz
engine_fuzz.main(int(sys.argv[2]), int(sys.argv[3]))
"""


def fuzz(
    source: Path, cache: Path, num_steps: int, optimization: str = "-O1"
) -> subprocess.CompletedProcess[str]:
    """Run `engine_fuzz.py` with the engine compiled from this source with sanitizers."""
    probe = ["cc", "-shared", *SANITIZERS, "-x", "c", os.devnull, "-o", str(cache / "probe.so")]
    if subprocess.run(probe, check=False, capture_output=True).returncode or not shutil.which(
        "ldd"
    ):
        pytest.skip("the C compiler lacks the sanitizers")
    variables = {"CC": shlex.join(["cc", optimization, "-g1", *SANITIZERS])}
    variables["XDG_CACHE_HOME"] = str(cache)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        patch.setattr(engine_library, "SOURCE", source)
        engine_library.engine_id.cache_clear()
        library = engine_library.find_or_compile(engine_library.compiler_command())
        engine_library.engine_id.cache_clear()
    linked = subprocess.check_output(["ldd", str(library)], text=True)
    # It must be loaded before all other libraries.
    sanitizer = re.search(r"libasan\S* => (\S+)", linked)
    if sanitizer is None:
        pytest.skip("the C compiler links the sanitizers statically")
    variables |= {
        "LD_PRELOAD": sanitizer[1],
        "ASAN_OPTIONS": "detect_leaks=0",
        "OMP_NUM_THREADS": "1",
    }
    variables["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    command = [
        sys.executable,
        "-c",
        FUZZING,
        str(source),
        str(num_steps),
        os.environ.get("NMT_FUZZ_SEED", "0"),
    ]
    return subprocess.run(
        command, env=os.environ | variables, check=False, capture_output=True, text=True
    )


@compiled
@pytest.mark.slow
def test_fuzzed_searches_access_only_their_memory(tmp_path_factory: pytest.TempPathFactory) -> None:
    result = fuzz(engine_library.SOURCE, tmp_path_factory.getbasetemp(), FUZZ_STEPS)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout.split()[0]) >= FUZZ_STEPS


@compiled
@pytest.mark.slow
def test_fuzzing_reports_an_overflow_of_one_float(tmp_path: Path) -> None:
    loop = "for (int64_t i = 0; i < dim; i++)"
    correct = f"{loop}\n            x_D[i] = load_scalar("
    text = engine_library.SOURCE.read_text(encoding="utf-8")
    assert text.count(correct) == 1
    planted = tmp_path / "engine.c"
    planted.write_text(
        text.replace(correct, correct.replace("i < dim", "i <= dim")), encoding="utf-8"
    )
    result = fuzz(planted, tmp_path, FUZZ_STEPS, "-O0")  # quick to compile; the process ends soon
    assert result.returncode != 0
    assert "AddressSanitizer: use-after-poison" in result.stderr
