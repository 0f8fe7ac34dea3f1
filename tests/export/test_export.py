"""Exports compute the same function as the model, and failed exports are discarded."""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from commandline import CommandLine, Done, finish, write
from numpy.typing import NDArray
from torch import Tensor

from nmt.cli import app
from nmt.core.config import config_io
from nmt.core.errors import NMTError, UsageError
from nmt.core.packages import install_line
from nmt.data.batching import collate
from nmt.engines import Source, max_target_length
from nmt.engines.ctranslate2 import CTranslate2Engine
from nmt.engines.pytorch import TorchModel
from nmt.export import EXPORTS, LOADERS, REFERENCES, onnx, safetensors, verify
from nmt.export.common import greedy_translator
from nmt.export.onnx import OnnxModel, graphs
from nmt.export.sentences import file_sentences
from nmt.model.build import build_model
from nmt.model.positions import POSITION_ENCODINGS
from nmt.model.seq2seq import Seq2Seq
from nmt.models import discovery
from nmt.runs import checkpoint, pretrained
from nmt.runs.model_files import LoadedModel
from nmt.runs.run_report import collect
from nmt.search import SearchRequest, parse_search
from nmt.search.request import StepRequest
from nmt.text.normalization import normalize
from nmt.text.tokenizer import BOS, EOS
from nmt.translation.translator import Line, Translator

LINES = [
    "the small dog sees the old tree.",
    "the heavy bird carries the green stone.",
    "the dog.",
    "Ça 🐕!",
]
FORMATS = sorted(EXPORTS.keys() - REFERENCES.keys())
PACKAGES = {
    "ctranslate2": ["ctranslate2"],
    "safetensors": [],
    "onnx": ["onnxscript", "onnxruntime"],
    "transformers": ["transformers"],
}


MODELS = ["pre-tied", pytest.param("post-untied", marks=pytest.mark.slow)]
# PyTorch's exporter takes more than ten seconds: the graphs of the other model are only compared
# before the export.
ONNX_CASE = pytest.param("pre-tied", "onnx", marks=pytest.mark.slow)
CASES = [
    ONNX_CASE,
    *(pytest.param("pre-tied", name) for name in FORMATS if name != "onnx"),
    *(
        pytest.param("post-untied", name, marks=pytest.mark.slow)
        for name in FORMATS
        if name != "onnx"
    ),
]
"""Models and the formats that compute what the model does in float32."""


def cases(*formats: str) -> pytest.MarkDecorator:
    """Return the parameters `loaded` and `to` of these formats."""
    chosen = [case for case in CASES if case.values[1] in formats]
    return pytest.mark.parametrize(("loaded", "to"), chosen, indirect=["loaded"], scope="module")


@pytest.fixture(scope="module", params=MODELS)
def loaded(
    request: pytest.FixtureRequest, trained: CommandLine, tmp_path_factory: pytest.TempPathFactory
) -> LoadedModel:
    """A run of each kind next to its corpus, with noise added to all parameters."""
    norm, tied = request.param.split("-")
    directory = tmp_path_factory.mktemp(request.param)
    for name in ("text.en", "text.de"):
        shutil.copyfile(trained.directory / name, directory / name)
    run = directory / "runs/x"
    run.mkdir(parents=True)
    noisy = variant(
        trained,
        noise=0.3,
        norm_position=norm,
        tie_embeddings=tied == "tied",
        dim=16,
        encoder_layers=2,
    )
    safetensors.export(noisy, run)
    (run / "config.yaml").write_text(config_io.dump(noisy.config))
    return dataclasses.replace(noisy, run=run, checkpoint=checkpoint.checkpoints(run)[-1])


@functools.cache
def report(to: str, run: Path) -> Done:
    """Export a run with the command."""
    directory = run.parents[1]
    return CommandLine(directory).run("export", run.relative_to(directory), "--to", to)


def exported(to: str, loaded: LoadedModel) -> Path:
    """Return the directory of an export in the run; export only once."""
    report(to, loaded.run)
    return loaded.run / to


# ---- the same model


def log_probs(model: Seq2Seq, ids: list[list[int]]) -> list[Tensor]:
    """Return the log-probability of each token, including the end token, with the source as the
    target."""
    batch = collate([(row, row) for row in ids])
    with torch.no_grad():
        hidden_ND = model(batch.src_BS, batch.src_mask_BS, batch.tgt_in_BT, batch.target_index_N)
        actual_N = model.logits(hidden_ND).log_softmax(-1).gather(1, batch.labels_N[:, None])[:, 0]
    return list(actual_N.split([len(row) + 1 for row in ids]))


def of_logits(logits_BTV: Tensor, ids: list[list[int]]) -> list[Tensor]:
    actual = []
    for row, logits_TV in zip(ids, logits_BTV, strict=True):
        target = torch.tensor([*row, EOS])
        actual.append(logits_TV[: len(target)].log_softmax(-1).gather(1, target[:, None])[:, 0])
    return actual


def by_ctranslate2(directory: Path, loaded: LoadedModel, ids: list[list[int]]) -> list[Tensor]:
    import ctranslate2

    pieces = [loaded.tokenizer.ids_to_pieces(row) for row in ids]
    engine = ctranslate2.Translator(str(directory), compute_type="float32")
    return [torch.tensor(actual.log_probs) for actual in engine.score_batch(pieces, pieces)]


def by_safetensors(directory: Path, loaded: LoadedModel, ids: list[list[int]]) -> list[Tensor]:
    return log_probs(discovery.load(directory).model, ids)


def by_onnx(directory: Path, loaded: LoadedModel, ids: list[list[int]]) -> list[Tensor]:
    model = OnnxModel.load(directory)
    batch = collate([(row, row) for row in ids])
    state = model.init_search_state([[*row, EOS] for row in ids])
    same_R = np.arange(len(ids))
    requests = [
        StepRequest(tokens_R, same_R, 1, all_log_probs=True)
        for tokens_R in batch.tgt_in_BT.t().numpy()
    ]
    steps = [state.step(request).log_p_RV for request in requests]
    return of_logits(torch.from_numpy(np.stack(steps, 1)), ids)


def by_transformers(directory: Path, loaded: LoadedModel, ids: list[list[int]]) -> list[Tensor]:
    import transformers

    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(directory, trust_remote_code=True)
    batch = collate([(row, row) for row in ids])
    with torch.no_grad():
        actual = model(
            batch.src_BS, attention_mask=batch.src_mask_BS.long(), decoder_input_ids=batch.tgt_in_BT
        )
    return of_logits(actual.logits, ids)


Score = Callable[[Path, LoadedModel, list[list[int]]], list[Tensor]]
SCORES: dict[str, Score] = {
    "ctranslate2": by_ctranslate2,
    "safetensors": by_safetensors,
    "onnx": by_onnx,
    "transformers": by_transformers,
}


@cases(*FORMATS)
def test_token_probabilities_equal_nmt(loaded: LoadedModel, to: str) -> None:
    ids = [loaded.tokenizer.encode(line) for line in LINES]
    actual = SCORES[to](exported(to, loaded), loaded, ids)
    for own_T, expected_T in zip(actual, log_probs(loaded.model, ids), strict=True):
        assert own_T.tolist() == pytest.approx(expected_T.tolist(), abs=1e-3)


def greedy(loaded: LoadedModel) -> list[str]:
    return greedy_translator(TorchModel([loaded.model]), loaded.tokenizer)(LINES)


@cases(*FORMATS)
def test_translations_equal_nmt(loaded: LoadedModel, to: str) -> None:
    translate = LOADERS[to](exported(to, loaded))
    expected = [*map(normalize, greedy(loaded))]
    assert len(set(expected)) > 1
    assert [
        *map(normalize, translate(LINES))
    ] == expected  # what these models say may end on control characters
    assert normalize(translate(LINES[2:3])[0]) == expected[2]


def test_engines_have_the_length_limits_of_nmt(loaded: LoadedModel) -> None:
    directory = exported("safetensors", loaded)
    expected = Translator.load(directory, "cpu", "fp32").translate(LINES, "greedy")
    lengths = [len(loaded.tokenizer.encode(text)) for text in expected]
    most = [max_target_length(len(loaded.tokenizer.encode(line))) for line in LINES]
    # Else nothing is shown.
    assert any(length >= limit - 5 for length, limit in zip(lengths, most, strict=True))
    assert LOADERS["safetensors"](directory)(LINES) == expected


class Session:
    """A stand-in for an ONNX Runtime session that runs a module, to test without the packages."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module

    def run(self, _: None, inputs: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
        actual = self.module(*(torch.from_numpy(array) for array in inputs.values()))
        return [tensor.numpy() for tensor in (actual if isinstance(actual, tuple) else (actual,))]


def request_of(loaded: LoadedModel) -> SearchRequest:
    """Return a request with different length limits."""
    sources = [[*loaded.tokenizer.encode(line), EOS] for line in LINES]
    return SearchRequest(sources, np.array([12, 5, 9, 3]), BOS, EOS)


def test_beam_search_of_onnx_modules(loaded: LoadedModel) -> None:
    check_beam_search(OnnxModel(*map(Session, graphs(loaded))), loaded)


@cases("onnx")
def test_onnx_beam_search(loaded: LoadedModel, to: str) -> None:
    check_beam_search(OnnxModel.load(exported(to, loaded)), loaded)


@cases("onnx")
def test_onnx_sources_have_an_end_token_only_if_the_model_reads_it(
    loaded: LoadedModel, to: str, tmp_path: Path
) -> None:
    directory = shutil.copytree(exported(to, loaded), tmp_path / "onnx")
    config = directory / "config.yaml"
    text = config.read_text()
    config.write_text(text.replace("source_eos: true", "source_eos: false"))
    assert config.read_text() != text
    translate = greedy_translator(TorchModel([loaded.model]), loaded.tokenizer, source_eos=False)
    expected = translate(LINES)
    assert LOADERS["onnx"](directory)(LINES) == expected
    assert expected != greedy(loaded)


def check_beam_search(model: OnnxModel, loaded: LoadedModel) -> None:
    request, beam = request_of(loaded), parse_search("beam(beam_size=3, top_beams=3)")
    with torch.inference_mode():
        actual, expected = beam(model, request), beam(TorchModel([loaded.model]), request)
    assert [[h.ids for h in sentence] for sentence in actual] == [
        [h.ids for h in sentence] for sentence in expected
    ]
    for own, sentence in zip(actual, expected, strict=True):
        assert [h.score for h in own] == pytest.approx([h.score for h in sentence], abs=1e-3)


OTHERS: dict[str, dict[str, Any]] = {
    **{name: {"position_encoding": name} for name in POSITION_ENCODINGS if name != "sinusoidal"},
    "additive": {"attention_score": "additive"},
    "grouped": {"kv_heads": 1},
    "swiglu": {"activation": "swiglu"},
    "rms": {"norm": "rms"},
    "shared": {"layer_sharing": 2, "decoder_layers": 3},
}


def variant(trained: CommandLine, noise: float = 0.1, **changes: Any) -> LoadedModel:
    """Return the tiny run with another model, with noise added to all parameters."""
    tiny = discovery.load(trained.directory / "runs/tiny")
    config = dataclasses.replace(
        tiny.config, model=dataclasses.replace(tiny.config.model, **changes)
    )
    torch.manual_seed(1)
    model = build_model(config.model, len(tiny.tokenizer)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(noise * torch.randn_like(parameter))
    return dataclasses.replace(tiny, config=config, model=model)


@pytest.mark.parametrize("changes", OTHERS.values(), ids=OTHERS)
def test_onnx_supports_every_transformer_variant(
    trained: CommandLine, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The solver of FLOATER takes seconds for a long path.
    monkeypatch.setattr(onnx, "num_positions", lambda _: 64)
    loaded = variant(trained, **changes)
    check_beam_search(OnnxModel(*map(Session, graphs(loaded))), loaded)


def test_shared_layers_are_exported_repeatedly(trained: CommandLine, tmp_path: Path) -> None:
    loaded = variant(trained, layer_sharing=2, encoder_layers=3, decoder_layers=2)
    EXPORTS["ctranslate2"](loaded, tmp_path)
    assert LOADERS["ctranslate2"](tmp_path)(LINES) == greedy(loaded)


@pytest.mark.parametrize("positions", ["rotary", "rotary(base=100.0)", "learned(max_positions=64)"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_positions_of_the_model_in_ctranslate2(
    trained: CommandLine, tmp_path: Path, positions: str, norm: str
) -> None:
    loaded = variant(
        trained, position_encoding=positions, norm_position=norm, encoder_layers=2, decoder_layers=2
    )
    EXPORTS["ctranslate2"](loaded, tmp_path)
    ids = [loaded.tokenizer.encode(line) for line in LINES]
    for own_T, expected_T in zip(
        by_ctranslate2(tmp_path, loaded, ids), log_probs(loaded.model, ids), strict=True
    ):
        assert own_T.tolist() == pytest.approx(expected_T.tolist(), abs=1e-3)
    assert LOADERS["ctranslate2"](tmp_path)(LINES) == greedy(loaded)


@pytest.mark.parametrize(
    ("to", "changes", "message"),
    [
        (
            "ctranslate2",
            {"position_encoding": "shaw"},
            "CTranslate2 does not support model.position_encoding=shaw",
        ),
        ("ctranslate2", {"arch": "rnn"}, "CTranslate2 does not support model.arch=rnn"),
        (
            "transformers",
            {"position_encoding": "t5"},
            "Transformers does not support model.position_encoding=t5",
        ),
        (
            "transformers",
            {"attention_score": "additive"},
            "Transformers does not support model.attention_score=additive",
        ),
        ("onnx", {"attention_window": 3}, "ONNX does not support model.attention_window=3"),
        ("onnx", {"arch": "rnn"}, "ONNX does not support model.arch=rnn"),
        ("onnx", {"decoder": "ssru"}, "ONNX does not support model.decoder=ssru"),
        ("ctranslate2", {"decoder": "ssru"}, "CTranslate2 does not support model.decoder=ssru"),
    ],
)
def test_unsupported_models_are_rejected(
    trained: CommandLine, tmp_path: Path, to: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        EXPORTS[to](variant(trained, **changes), tmp_path)
    assert "--to safetensors" in caught.value.hint
    assert not list(tmp_path.iterdir())


def test_transformers_loads_the_export(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    directory = exported("transformers", loaded)
    monkeypatch.setattr(socket.socket, "connect", None)  # there is no network
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(directory)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    pre = loaded.config.model.norm_position == "pre"
    assert type(model).__name__ == ("PegasusForConditionalGeneration" if pre else "MarianMTModel")
    assert type(tokenizer).__name__ == "MarianTokenizer"
    inputs = tokenizer(LINES, return_tensors="pt", padding=True)
    actual = model.generate(**inputs, num_beams=1, max_new_tokens=9)
    texts = [loaded.tokenizer.decode(row) for row in actual.tolist()]
    assert [*map(normalize, tokenizer.batch_decode(actual, skip_special_tokens=True))] == [
        *map(normalize, texts)
    ]
    request = SearchRequest(unpadded(inputs), np.full(len(LINES), 9), BOS, EOS)
    expected = parse_search("greedy")(TorchModel([loaded.model]), request)
    assert texts == [loaded.tokenizer.decode(best[0].ids) for best in expected]


OWN_MODELS: dict[str, dict[str, Any]] = {
    "rotary": {"position_encoding": "rotary"},
    "post": {"position_encoding": "rotary(base=100.0)", "norm_position": "post", "kv_heads": 1},
    "sinusoidal": {"activation": "swiglu", "norm": "rms", "tie_embeddings": False},
    "concatenated": {"position_encoding": "sinusoidal_concatenated", "norm": "rms"},
    "shared": {
        "position_encoding": "rotary",
        "layer_sharing": 2,
        "decoder_layers": 3,
        "output_bias": True,
    },
}


@pytest.mark.parametrize("changes", OWN_MODELS.values(), ids=OWN_MODELS)
def test_transformers_runs_the_code_of_other_models(
    trained: CommandLine, tmp_path: Path, changes: dict[str, Any]
) -> None:
    import transformers

    loaded = variant(trained, **changes)
    EXPORTS["transformers"](loaded, tmp_path)
    ids = [loaded.tokenizer.encode(line) for line in LINES]
    for own_T, expected_T in zip(
        by_transformers(tmp_path, loaded, ids), log_probs(loaded.model, ids), strict=True
    ):
        assert own_T.tolist() == pytest.approx(expected_T.tolist(), abs=1e-3)
    translations = LOADERS["transformers"](tmp_path)(LINES)
    assert [*map(normalize, translations)] == [*map(normalize, greedy(loaded))]
    # A beam search reorders the KV cache.
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path, trust_remote_code=True)
    batch = collate([(row, row) for row in ids])
    outputs = []
    for use_cache in (False, True):
        outputs.append(
            model.generate(
                batch.src_BS,
                attention_mask=batch.src_mask_BS.long(),
                max_new_tokens=9,
                num_beams=3,
                use_cache=use_cache,
            )
        )
    assert torch.equal(*outputs)


CONFIGS = sorted(path.stem for path in (Path(__file__).parents[2] / "configs").glob("*.yaml"))
CONFIGS.remove("firefox")  # a recurrent decoder, for which there is an export of its own


def test_transformers_supports_every_built_in_config(trained: CommandLine, tmp_path: Path) -> None:
    """Most configs differ in their sizes and dropout only."""
    same = {"dim": 16, "heads": 2, "ffn_dim": 32, "encoder_layers": 2, "decoder_layers": 2}
    same |= {"dropout": 0.0}
    models = [vars(config_io.load(config_io.find(name)).model) | same for name in CONFIGS]
    different = [model for i, model in enumerate(models) if model not in models[:i]]
    assert len(different) > 2
    for number, changes in enumerate(different):
        loaded = variant(trained, **changes)
        directory = tmp_path / str(number)
        directory.mkdir()
        EXPORTS["transformers"](loaded, directory)
        translations = LOADERS["transformers"](directory)(LINES)
        assert [*map(normalize, translations)] == [*map(normalize, greedy(loaded))]


def translate_without_nmt() -> None:
    """Translate in a process in which `nmt` cannot be imported."""
    for name in [*sys.modules]:
        if name.partition(".")[0] == "nmt":
            del sys.modules[name]
    sys.modules["nmt"] = None  # type: ignore[assignment]
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    directory, *lines = sys.argv[1:]
    model = AutoModelForSeq2SeqLM.from_pretrained(directory, trust_remote_code=True)
    tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=True)
    inputs = tokenizer(lines, return_tensors="pt", padding=True)
    outputs = model.generate(**inputs, num_beams=1)
    for text in tokenizer.batch_decode(outputs, skip_special_tokens=True):
        print(ascii(text))


@pytest.mark.slow
def test_the_export_of_a_pretrained_model_needs_no_nmt(bare: CommandLine) -> None:
    lines = ["The old bridge is closed.", "Yes."]
    (bare.directory / "lines.en").write_text("".join(f"{line}\n" for line in lines))
    options = ("--to", "transformers", "--verify-with", "lines.en", "--output", "hf")
    bare.run("export", "en-de", *options)
    done = finish(bare.fork("hf", *lines, main=translate_without_nmt)).check()
    translations = Translator.load(pretrained.find(Path("en-de")), "cpu", "fp32")
    assert done.out.splitlines() == [
        ascii(text) for text in translations.translate(lines, "greedy")
    ]


def test_an_export_with_code_is_imported_without_running_it(
    trained: CommandLine, nmt: CommandLine
) -> None:
    directory = nmt.directory / "hf"
    directory.mkdir()
    loaded = variant(trained, **OWN_MODELS["post"])
    EXPORTS["transformers"](loaded, directory)
    (directory / "modeling_nmt.py").write_text("raise SystemExit")
    nmt.run("import", "hf", "--run", "runs/again")
    again = discovery.load(nmt.directory / "runs/again")
    expected = loaded.model.state_dict()
    actual = again.model.state_dict()
    assert actual.keys() == expected.keys()
    assert all(torch.equal(actual[name], expected[name]) for name in expected)
    assert greedy(again) == greedy(loaded)
    config = directory / "config.json"
    options = json.loads(config.read_text())
    for damage, code, message in (
        ({"dim": 48}, 1, "do not fit"),
        ({"heads": "two"}, 1, "damaged"),
        ({"norm": "batch"}, 1, "unknown value 'batch'"),
        ({"attention_window": "wide", "position_encoding": "shaw"}, 1, "do not fit"),
        ({"rotary_base": -1}, 1, "base"),
    ):
        config.write_text(json.dumps(options | damage))
        nmt("import", "hf", "--run", "runs/other").assert_fails(code, message)


def unpadded(inputs: dict[str, Tensor]) -> list[list[int]]:
    """Return the source ids, including the end token."""
    rows = zip(inputs["input_ids"], inputs["attention_mask"], strict=True)
    return [ids[mask.bool()].tolist() for ids, mask in rows]


def test_transformers_tokenizes_like_nmt(loaded: LoadedModel) -> None:
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(exported("transformers", loaded))
    for text in (*LINES, "x</s> y <s> <pad><unk>", "<0x41> 12345", "naïve 日本", "a . b ,c 's"):
        ids = loaded.tokenizer.encode(text)
        assert tokenizer(text)["input_ids"] == [*ids, EOS]
        assert (
            tokenizer.decode([BOS, *ids, EOS], skip_special_tokens=True)
            == loaded.tokenizer.decode(ids)
            == text
        )


def test_bf16_and_int8_weights_are_smaller_and_accurate(
    loaded: LoadedModel, tmp_path: Path
) -> None:
    sizes = {}
    for weights in safetensors.WEIGHT_TYPES:
        directory = tmp_path / weights
        directory.mkdir()
        safetensors.export(loaded, directory, weights=weights)
        sizes[weights] = next(directory.glob("step-*/model.safetensors")).stat().st_size
        actual = discovery.load(directory).model.state_dict()
        for name, expected in loaded.model.state_dict().items():
            largest = expected.abs().amax(-1, keepdim=True)
            atol = {"int8": 1 if expected.ndim == 2 else 0}.get(weights, 0) * largest / 127 / 2
            rtol = 0 if weights == "fp32" else 2**-8
            assert bool(
                ((actual[name] - expected).abs() <= atol * 1.001 + rtol * expected.abs()).all()
            ), name
    assert sizes["bf16"] < 0.6 * sizes["fp32"]
    assert sizes["int8"] < 0.4 * sizes["fp32"]


def test_int8_weights_can_be_used_like_others(loaded: LoadedModel, tmp_path: Path) -> None:
    for name, weights in (("small", "int8"), ("large", "fp32")):
        (tmp_path / name).mkdir()
        safetensors.export(
            loaded if name == "small" else discovery.load(tmp_path / "small"),
            tmp_path / name,
            weights=weights,
        )
    small, large = (collect(tmp_path / name) for name in ("small", "large"))
    assert small["parameters"] == large["parameters"]
    (one,) = checkpoint.checkpoints(tmp_path / "small")
    (other,) = checkpoint.checkpoints(tmp_path / "large")
    assert (checkpoint.read_meta(one)["format"], checkpoint.read_meta(other)["format"]) == (1, 1)
    mean = checkpoint.read_tensors(checkpoint.average(tmp_path / "small", 1), checkpoint.WEIGHTS)
    whole = checkpoint.read_tensors(other, checkpoint.WEIGHTS)
    assert all(torch.equal(mean[name], whole[name]) for name in whole)
    assert mean.keys() == whole.keys()


# ---- the command


@cases(*FORMATS)
def test_command_exports_and_reports(loaded: LoadedModel, to: str) -> None:
    done = report(to, loaded.run)
    lines = dict(line.split(maxsplit=1) for line in done.out.splitlines())
    assert list(lines) == ["format", "data", "identical", "BLEU", "size", "speed"]
    assert lines["format"] == f"{to}, in runs/x/{to}"
    assert lines["data"].startswith("20 sentences of text/test, greedy, fp32")
    assert lines["identical"] == "100.0%"
    if loaded.config.model.tie_embeddings:  # translations of the other one have single words
        assert lines["BLEU"].startswith("100.0 ")
    assert [path.name for path in loaded.run.glob(".*") if path.is_dir()] == []
    assert done.err == ""
    if to != "transformers":  # that one is for Transformers alone
        for file in ("config.yaml", "spm.model", "data.json"):
            assert (loaded.run / to / file).read_bytes() == (loaded.run / file).read_bytes()


def test_exported_run_translates_without_the_original(nmt: CommandLine) -> None:
    nmt.run("export", "runs/tiny", "--to", "safetensors", "--output", "lean")
    expected = nmt("translate", "--model", "runs/tiny", LINES[0]).out
    shutil.rmtree(nmt.directory / "runs")
    assert sorted(path.name for path in (nmt.directory / "lean").rglob("*") if path.is_file()) == [
        "config.yaml",
        "data.json",
        "meta.json",
        "model.safetensors",
        "spm.model",
    ]
    assert nmt.run("translate", "--model", "lean", LINES[0]).out == expected


def test_ctranslate2_engine_loads_the_export(nmt: CommandLine) -> None:
    nmt.run("export", "runs/tiny", "--to", "ctranslate2")
    common = (
        "translate",
        "--no-guard",
        "--model",
        "runs/tiny",
        "--search",
        "greedy",
        "--precision",
        "fp32",
        *LINES,
    )
    expected, actual = nmt(*common), nmt(*common, "--engine", "ctranslate2")
    assert actual.code == 0, actual.err
    assert actual.out == expected.out
    nmt(*common, "--engine", "ctranslate2", "--precision", "int4").assert_fails(
        2, "unknown precision 'int4'"
    )


def test_average_can_be_exported(nmt: CommandLine) -> None:
    nmt.run("average", "runs/tiny", "--last", "2")
    nmt.run("export", "runs/tiny/average-2", "--to", "safetensors", "-o", "lean")
    actual, expected = (
        discovery.load(nmt.directory / name).model for name in ("lean", "runs/tiny/average-2")
    )
    assert all(map(torch.equal, actual.parameters(), expected.parameters()))


@pytest.mark.slow
def test_verification_uses_the_given_file_or_the_phrasebook(nmt: CommandLine) -> None:
    tokens = json.loads((nmt.directory / "runs/tiny/data.json").read_text())["max_source_length"]
    (nmt.directory / "mine.en").write_text(
        "the dog.\n\n  \n" + "the old cat sees. " * tokens + "\n", encoding="utf-8"
    )
    done = nmt.run(
        "export", "runs/tiny", "--to", "safetensors", "-o", "a", "--verify-with", "mine.en"
    )
    count, rest = done.out.splitlines()[1].removeprefix("data").split(maxsplit=1)
    assert int(count) > 2  # blank lines do not count, and what is too long is cut
    assert rest.startswith("sentences of mine.en, ")
    (nmt.directory / "text.en").unlink()
    done = nmt("export", "runs/tiny", "--to", "safetensors", "-o", "b")
    assert " of phrasebook/test, " in done.out


def test_exports_get_the_text_that_nmt_reads(nmt: CommandLine) -> None:
    lines = ["the dog`s tree.", "ｔｈｅ 𝐝𝐨𝐠.", "the dog."]
    (nmt.directory / "mine.en").write_text("\n".join(lines), encoding="utf-8")
    options = ("--to", "safetensors", "--output", "a", "--verify-with", "mine.en")
    done = nmt.run("export", "runs/tiny", *options, "--min-agreement", "1")
    assert "3 sentences of mine.en, " in done.out
    loaded = discovery.load(nmt.directory / "runs/tiny")
    _, sentences = file_sentences(nmt.directory / "mine.en", loaded)
    assert sentences == ["the dog's tree.", "the dog.", "the dog."]


@cases("ctranslate2", "onnx", "transformers")
def test_documented_example_runs(
    loaded: LoadedModel,
    to: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(exported(to, loaded).parent)
    page = (Path(__file__).parents[2] / "docs" / "export.md").read_text(encoding="utf-8")
    example = page.split(f"\n## {to}\n")[1].split("```python\n")[1].split("```")[0]
    capsys.readouterr()
    exec(compile(example, to, "exec"), {})
    out = capsys.readouterr().out
    assert out.strip()
    if to == "onnx":  # the others search with beams
        assert normalize(out) == normalize(LOADERS[to](Path(to))(["A dog runs."])[0])


# ---- what is refused


def shifted(loaded: LoadedModel, directory: Path) -> None:
    """Export a model whose output layer is shifted by one piece."""
    model = loaded.model
    with torch.no_grad():
        model.embedding_weight("output").copy_(model.embedding_weight("output").roll(1, 0))
    safetensors.export(dataclasses.replace(loaded, model=model), directory)


def test_failed_verification_discards_the_export(
    nmt: CommandLine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(EXPORTS, "safetensors", shifted)
    monkeypatch.chdir(nmt.directory)
    run, directory = Path("runs/tiny"), Path("there")
    with pytest.raises(
        NMTError,
        match=r"only \d+ of 20 translations with safetensors are identical .* requires 99\.0%",
    ) as actual:
        verify.export_and_verify(run, "safetensors", directory)
    assert not isinstance(actual.value, UsageError)
    assert "the export was discarded" in actual.value.message
    assert "in nmt, but '" in actual.value.message
    assert "--min-agreement" in actual.value.hint
    with pytest.raises(SystemExit) as exit_:
        app(["export", str(run), "--to", "safetensors", "-o", str(directory)], prog_name="nmt")
    assert exit_.value.code == 1
    assert capsys.readouterr().out == ""
    assert sorted(path.name for path in nmt.directory.iterdir()) == [
        "data",
        "runs",
        "text.de",
        "text.en",
    ]
    verification = verify.export_and_verify(run, "safetensors", directory, min_agreement=0)
    assert verification.agreement < 0.99
    assert verification.bleu < 99
    assert directory.is_dir()


def test_a_directory_created_during_the_export_is_kept(
    nmt: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def create(loaded: LoadedModel, work: Path) -> None:
        safetensors.export(loaded, work)
        (nmt.directory / "there").mkdir()
        (nmt.directory / "there/notes").touch()

    monkeypatch.setitem(EXPORTS, "safetensors", create)
    nmt("export", "runs/tiny", "--to", "safetensors", "-o", "there").assert_fails(
        2, "there already exists"
    )
    assert [path.name for path in (nmt.directory / "there").iterdir()] == ["notes"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("runs/tiny", 2, "Missing option '--to'"),
        ("--to onnx", 2, "Missing argument 'run'"),
        ("runs/tiny --to onxx", 2, "did you mean 'onnx'?"),
        ("runs/tiny --to transformer", 2, "did you mean 'transformers'?"),
        ("runs/tiny --to safetensors(weights='bf15')", 2, "did you mean 'bf16'?"),
        ("runs/tiny --to safetensors(type='bf16')", 2, "has no option 'type'"),
        ("runs/tiny --to safetensors --output runs", 2, "runs already exists"),
        ("runs/tiny --to safetensors --output text.en", 2, "text.en already exists"),
        (
            "runs/tiny --to safetensors --min-agreement 99",
            2,
            "--min-agreement must be between 0 and 1, got 99.0",
        ),
        (
            "runs/tiny --to safetensors --min-agreement nan",
            2,
            "--min-agreement must be between 0 and 1, got nan",
        ),
        ("runs/tiny --to safetensors --verify-with none.en", 1, "no such file: none.en"),
        ("runs/tiny --to safetensors --verify-with blank.en", 1, "blank.en has no sentences"),
        ("runs/none --to safetensors", 1, "there is no model at runs/none"),
        ("runs --to safetensors", 1, "runs has no checkpoint"),
    ],
)
def test_errors_are_one_line(
    arguments: str, code: int, message: str, trained: CommandLine, tmp_path: Path
) -> None:
    nmt = CommandLine(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/tiny").symlink_to(trained.directory / "runs/tiny")
    write(tmp_path / "text", ["the dog"], ["der Hund"])
    (tmp_path / "blank.en").write_text("\n \n")
    before = sorted(tmp_path.rglob("*"))
    nmt("export", *arguments.split()).assert_fails(code, message)
    assert sorted(tmp_path.rglob("*")) == before
    assert not list((trained.directory / "runs/tiny").glob("*safetensors*"))


@pytest.mark.parametrize(
    ("to", "package"), [(to, package) for to, packages in PACKAGES.items() for package in packages]
)
def test_missing_package_is_reported(
    to: str, package: str, nmt: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    done = nmt("export", "runs/tiny", "--to", to)
    done.assert_fails(2, "is not installed", install_line(package))
    assert not (nmt.directory / "runs/tiny" / to).exists()
    assert [path.name for path in (nmt.directory / "runs/tiny").glob(".*") if path.is_dir()] == []


@pytest.mark.slow
def test_packages_are_imported_only_when_needed(nmt: CommandLine) -> None:
    for package in (each for packages in PACKAGES.values() for each in packages):
        (nmt.directory / f"{package}.py").write_text(
            f"raise ImportError('No module named {package}')"
        )
    nmt.process("export", "runs/tiny", "--to", "onnx").assert_fails(
        2, "onnxscript is not installed"
    )


class Numbers:
    """A tokenizer whose pieces are the ids as text."""

    def ids_to_pieces(self, ids: Sequence[int]) -> list[str]:
        return [*map(str, ids)]

    def pieces_to_ids(self, pieces: Sequence[str]) -> list[int]:
        return [*map(int, pieces)]


class Noted:
    """A CTranslate2 stand-in that records its options and returns the given hypotheses, or the
    source."""

    num_translators = 1

    def __init__(self, actual: dict[str, float] | None = None) -> None:
        self.actual, self.options = actual, {}

    def translate_batch(self, sources: list[list[str]], **options: Any) -> list[SimpleNamespace]:
        self.options = options
        every = [self.actual or {" ".join(source): -1.0} for source in sources]
        return [
            SimpleNamespace(hypotheses=[h.split() for h in actual], scores=[*actual.values()])
            for actual in every
        ]

    def score_batch(
        self, sources: Any, targets: list[list[str]], **options: Any
    ) -> list[SimpleNamespace]:
        return [SimpleNamespace(log_probs=[-0.25] * len(target) + [-9.0]) for target in targets]


def ctranslate2_engine(noted: Noted) -> CTranslate2Engine:
    engine = CTranslate2Engine.__new__(CTranslate2Engine)
    engine.tokenizer, engine.translator = Numbers(), noted
    return engine


def test_ctranslate2_receives_the_search_options() -> None:
    rules = "no_repeat_ngram_size=2, min_length_ratio=1.5, max_length_ratio=2.5"
    find = parse_search(f"beam(beam_size=3, top_beams=2, length_penalty=0.5, {rules})")
    noted = Noted({"5 6": -1.0, "5": -0.5})
    (actual,) = ctranslate2_engine(noted).search([Source([7, 8, 9], [5])], find, print)
    expected = {
        "beam_size": 3,
        "num_hypotheses": 3,
        "length_penalty": 0.5,
        "no_repeat_ngram_size": 2,
        "min_decoding_length": 4,
        "max_decoding_length": 16,
        "target_prefix": [["5"]],
    }
    assert {name: noted.options[name] for name in expected} == expected
    assert [h.ids for h in actual] == [[5], [5, 6]]
    # The scores do not include the log-probability of the prefix.
    for h, log_prob in zip(actual, (-0.5 * 2**0.5 - 0.25, -1.0 * 3**0.5 - 0.25), strict=True):
        norm = ((5 + len(h.ids) + 1) / 6) ** 0.5
        assert (h.log_prob, h.length_norm, h.score) == pytest.approx(
            (log_prob, norm, log_prob / norm)
        )


def test_ctranslate2_hypotheses_are_cut_at_the_limit_and_scored_again() -> None:
    find = parse_search("beam(beam_size=4, top_beams=4, max_length_ratio=1.0, length_penalty=0.0)")
    noted = Noted({"4 4 4 5": -1.0, "4 4 4 6 7": -2.0, "4 4 4": -3.0, "4 4": -4.0})
    (actual,) = ctranslate2_engine(noted).search([Source([7, 8, 9])], find, print)
    log_probs = {tuple(h.ids): h.log_prob for h in actual}
    assert log_probs == {(4, 4): -4.0, (4, 4, 4): 3 * -0.25 - 9.0}
    assert [h.ids for h in actual] == [[4, 4], [4, 4, 4]]


def test_ctranslate2_keeps_the_order_of_sentences() -> None:
    sources = [Source([7] * length) for length in (2, 30, 1, 12)]
    for spec in ("greedy", "beam(beam_size=2)"):
        actual = ctranslate2_engine(Noted()).search(sources, parse_search(spec), print)
        assert [best[0].ids for best in actual] == [source.ids for source in sources]


def test_ctranslate2_scores_and_constraints_equal_nmt(nmt: CommandLine) -> None:
    nmt.train("runs/ended", train__steps="10", train__schedule="linear(peak=3e-3, warmup=100)")
    nmt.run("export", "runs/ended", "--to", "ctranslate2", "--output", "ct")
    ours, theirs = (
        Translator.load(nmt.directory / "runs/ended", "cpu", "fp32"),
        Translator.load(nmt.directory / "ct", "cpu", "fp32", "ctranslate2"),
    )
    specs = (
        "greedy",
        "beam(beam_size=3, top_beams=2)",
        "beam(beam_size=4, top_beams=4, max_length_ratio=0.5)",
        "greedy(max_length_ratio=1.5)",
    )
    for spec in specs:
        for actual in theirs.n_best(LINES, spec):
            token_lists = {tuple(t.tokens) for t in actual}
            assert len(token_lists) == len(actual)
            # Those of the search may differ in the last bit of float32.
            scores = [t.score for t in actual]
            assert scores == pytest.approx(sorted(scores, reverse=True), rel=1e-6)
            for t in actual:
                norm = (5 + len(t.tokens)) / 6 if spec.startswith("beam") else 1.0
                assert t.score == pytest.approx(t.log_prob / norm, abs=1e-4)
    ids = theirs.tokenizer.encode(LINES[0])
    [[greedy]] = theirs.engine.search([Source(ids)], parse_search("greedy"), print)
    (tokens,) = theirs.engine.score([ids], [greedy.ids])
    assert greedy.log_prob == pytest.approx(sum(tokens.log_probs), rel=1e-4)
    assert theirs.translate(LINES, "greedy(max_length_ratio=1.5)") == ours.translate(
        LINES, "greedy(max_length_ratio=1.5)"
    )
    wish = [Line("the dog", prefix="der Vogel")]
    assert theirs.translate(wish, "greedy") == ours.translate(wish, "greedy")
    with pytest.raises(UsageError, match="only the greedy and beam searches"):
        theirs.translate(LINES, "sample")
    nmt("translate", "--model", "ct", "hi").assert_fails(
        1, "ct is an export for CTranslate2", "--engine ctranslate2"
    )


def test_models_with_placeholders_are_compared_on_the_text_itself() -> None:
    run = pretrained.find(Path("en-de"))
    loaded, text = (
        discovery.load(run),
        ["My address is a.b@example.com.", "See https://example.org/a now."],
    )
    translate = greedy_translator(TorchModel([loaded.model]), loaded.tokenizer)
    assert verify.translate_with_nmt(loaded, text).translations == translate(text)
