"""Import of CTranslate2 models: packages of Argos Translate, and exports of nmt. CTranslate2 is the
reference."""

from __future__ import annotations

import functools
import io
import itertools
import json
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece as spm
from commandline import CommandLine, sentences, write

from nmt.engines.pytorch import TorchModel
from nmt.model.positions.absolute import sinusoids
from nmt.models import discovery
from nmt.models.importers import import_model
from nmt.runs.model_files import load_settings
from nmt.translation.translator import Translator

pytestmark = pytest.mark.slow

ctranslate2 = pytest.importorskip("ctranslate2", reason="needs ctranslate2")
DIM, HEADS, FFN_DIM = 32, 4, 48
SPECIAL = ["<unk>", "<blank>", "<s>", "</s>"]  # the order of OpenNMT-py


@functools.cache
def sentencepiece_model() -> bytes:
    model = io.BytesIO()
    lines = itertools.chain(*sentences(400))
    spm.SentencePieceTrainer.train(
        sentence_iterator=lines,
        model_writer=model,
        vocab_size=120,
        minloglevel=2,
        hard_vocab_limit=False,
    )
    return model.getvalue()


def fill(spec: Any, rng: np.random.Generator, name: str = "") -> None:
    """Set all weights of a specification to random values."""
    for key, value in vars(spec).items():
        if isinstance(value, list):
            for i, part in enumerate(value):
                fill(part, rng, f"{name}/{key}_{i}")
        elif isinstance(value, ctranslate2.specs.model_spec.LayerSpec):
            fill(value, rng, f"{name}/{key}")
        elif key in ("gamma", "beta"):
            setattr(spec, key, rng.normal(key == "gamma", 0.2, DIM).astype(np.float32))
    if isinstance(spec, ctranslate2.specs.common_spec.LinearSpec):
        sizes = {
            "self_attention/linear_0": (3 * DIM, DIM),
            "/attention/linear_1": (2 * DIM, DIM),
            "ffn/linear_0": (FFN_DIM, DIM),
            "ffn/linear_1": (DIM, FFN_DIM),
        }
        outputs, inputs = next((size for part, size in sizes.items() if part in name), (DIM, DIM))
        spec.weight = rng.normal(0, 1.5 * inputs**-0.5, (outputs, inputs)).astype(np.float32)
        spec.bias = rng.normal(0, 0.2, outputs).astype(np.float32)


def package(
    directory: Path,
    *,
    quantization: str | None = None,
    separate: bool = False,
    tied: bool = False,
    table: Any = True,
    zero_start: bool = False,
    scale_embeddings: Any = True,
    options: dict[str, Any] | None = None,
    **config: Any,
) -> Path:
    """Write a package with random weights as Argos Translate publishes them, and return its
    CTranslate2 directory."""
    rng = np.random.default_rng(1)
    root = directory / "en_de"
    (root / "model").mkdir(parents=True)
    (root / "stanza").mkdir()
    (root / "stanza" / "config.json").write_text("[]")
    (root / "metadata.json").write_text(
        json.dumps({"package_version": "1.0", "from_code": "en", "to_code": "de"})
    )
    (root / "sentencepiece.model").write_bytes(sentencepiece_model())
    model = spm.SentencePieceProcessor(model_file=str(root / "sentencepiece.model"))
    pieces = [model.id_to_piece(i) for i in range(3, len(model))]
    source = target = [*SPECIAL, "unused", *sorted(pieces)]
    if separate:
        used = ({*itertools.chain(*model.encode(lines, out_type=str))} for lines in sentences(400))
        source, target = ([*SPECIAL, *sorted(each)] for each in used)
        assert len(source) != len(target)
    spec = ctranslate2.specs.TransformerSpec.from_config((2, 2), HEADS, **config)
    fill(spec, rng)
    embeddings = [
        rng.normal(0, DIM**-0.5, (len(ids), DIM)).astype(np.float32) for ids in (source, target)
    ]
    spec.encoder.embeddings[0].weight = embeddings[0]
    spec.decoder.embeddings.weight = embeddings[0] if tied else embeddings[1]
    spec.decoder.projection.weight = (
        embeddings[0]
        if tied
        else rng.normal(0, 2 * DIM**-0.5, (len(target), DIM)).astype(np.float32)
    )
    spec.decoder.projection.bias = rng.normal(0, 1, len(target)).astype(np.float32)
    spec.decoder.projection.bias[target.index("</s>")] += 2.0  # translations end
    spec.decoder.start_from_zero_embedding = zero_start
    for stack in (spec.encoder, spec.decoder):
        stack.scale_embeddings = scale_embeddings
        if isinstance(table, np.ndarray):
            stack.position_encodings.encodings = table
        elif table:
            stack.position_encodings.encodings = sinusoids(500, DIM).numpy()
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    for name, value in (options or {}).items():
        setattr(spec.config, name, value)
    spec.validate()
    spec.optimize(quantization)
    spec.save(str(root / "model"))
    shutil.make_archive(str(directory / "translate-en_de"), "zip", directory, "en_de")
    (directory / "translate-en_de.zip").rename(directory / "translate-en_de.argosmodel")
    return root / "model"


CONFIGS: dict[str, dict[str, Any]] = {
    "separate": {"separate": True},
    "shared": {"tied": True},
    "int8": {"quantization": "int8", "tied": True},
    "int16": {"quantization": "int16"},
    "float16": {"quantization": "float16", "separate": True},
    "int8_bfloat16": {"quantization": "int8_bfloat16"},
    "post-norm": {"pre_norm": False, "activation": ctranslate2.specs.Activation.SWISH},
    "gelu": {"activation": ctranslate2.specs.Activation.GELU, "options": {"add_source_eos": True}},
    "table": {"table": np.random.default_rng(2).normal(0, 0.3, (200, DIM)).astype(np.float32)},
    "computed": {"table": False},
    "unscaled": {"scale_embeddings": False, "tied": True},
    "factor": {"scale_embeddings": np.float32(3.5)},
    "start": {"options": {"decoder_start_token": "</s>"}, "tied": True},
    "zero-start": {"zero_start": True},
}


@pytest.mark.parametrize("name", CONFIGS)
def test_translations_and_log_probabilities_equal_ctranslate2(tmp_path: Path, name: str) -> None:
    directory = package(tmp_path, **CONFIGS[name])
    run = import_model(str(tmp_path / "translate-en_de.argosmodel"), tmp_path / "run")
    config = load_settings(run)[0]
    assert (config.data.src, config.data.tgt) == ("en", "de")
    assert config.model.tie_embeddings == (bool(CONFIGS[name].get("tied")) and name != "unscaled")
    reference = ctranslate2.Translator(str(directory), compute_type="float32", intra_threads=1)
    processor = spm.SentencePieceProcessor(model_file=str(directory.parent / "sentencepiece.model"))
    lines, references = (each[:20] for each in sentences(20))
    sources, targets = (
        processor.encode(lines, out_type=str),
        processor.encode(references, out_type=str),
    )
    translator = Translator.load(run, "cpu", "fp32")
    tolerance = 2e-2 if "float16" in name else 1e-3  # the position encodings are exact in nmt
    for ours, theirs in zip(
        translator.score(zip(lines, references, strict=True)),
        reference.score_batch(sources, targets),
        strict=True,
    ):
        tokens = [log_prob for _, log_prob in zip(ours.tokens, ours.token_log_probs, strict=False)]
        assert tokens == pytest.approx(theirs.log_probs, abs=tolerance)
    ids = [
        translator.tokenizer.encode_batch(lines),
        translator.tokenizer.encode_batch(references, target=True),
    ]
    pytorch = TorchModel([discovery.load(run).model]).score(*ids)
    for ours, theirs in zip(translator.engine.score(*ids), pytorch, strict=True):
        assert ours.log_probs == pytest.approx(theirs.log_probs, abs=1e-3)
        assert ours.attention_TS == pytest.approx(theirs.attention_TS, abs=1e-4)
    num_compared, differences = 0, []
    for search, options in (
        ("greedy", {"beam_size": 1}),
        ("beam(beam_size=4, length_penalty=0)", {"beam_size": 4, "length_penalty": 0}),
    ):
        names = {"<pad>": "<blank>", "<s>_": "<s>"}
        actual = [
            [names.get(token, token) for token in n[0].tokens[:-1]]
            for n in translator.n_best(lines, search)
        ]
        for tokens, translation in zip(sources, actual, strict=True):
            limit = 2 * (len(tokens) + 1) + 10
            (expected,) = reference.translate_batch(
                [tokens], min_decoding_length=0, max_decoding_length=limit, **options
            )
            if (
                len(expected.hypotheses[0]) < limit or search == "greedy"
            ):  # at the limit, nmt adds the end token
                differences += [translation] * (translation != expected.hypotheses[0])
                num_compared += bool(translation)
    assert len(differences) <= ("float16" in name)  # a near tie
    assert num_compared >= 10


@pytest.mark.parametrize(
    "options",
    [
        {},
        {
            "model__norm_position": "post",
            "model__tie_embeddings": "false",
            "model__activation": "silu",
        },
        {"model__position_encoding": "rotary(base=500.0)", "model__source_eos": "false"},
    ],
)
def test_import_of_an_export_is_the_identity(tmp_path: Path, options: dict[str, str]) -> None:
    nmt = CommandLine(tmp_path)
    write(tmp_path / "text", *sentences(400))
    nmt.train("runs/tiny", train__steps="2", model__dropout="0.3", **options)
    nmt.run("export", "runs/tiny", "--to", "ctranslate2", "--min-agreement", "0.8")
    assert (
        nmt.run("import", "runs/tiny/ctranslate2", "--run", "runs/imported").out
        == "runs/imported\n"
    )
    first, second = (discovery.load(tmp_path / "runs" / name) for name in ("tiny", "imported"))
    assert first.config.model == second.config.model
    assert first.max_source_length == second.max_source_length < 50
    assert first.tokenizer.model == second.tokenizer.model
    weights = second.model.state_dict()
    for name, weight in first.model.state_dict().items():
        assert weight.equal(weights[name]), name


def test_every_command_works_with_a_model_without_source_eos(tmp_path: Path) -> None:
    nmt = CommandLine(tmp_path)
    write(tmp_path / "text", *sentences(100))
    package(tmp_path, tied=True)
    done = nmt("import", "translate-en_de.argosmodel")
    assert (done.code, done.out) == (0, "runs/translate-en_de\n"), done.err
    run = "runs/translate-en_de"
    for arguments in (
        ["translate", "", "日本", "--model", run],
        ["evaluate", "--model", run, "--src", "text.en", "--ref", "text.de"],
        ["attention", "the dog", "--model", run, "-o", "attention.json"],
        ["export", run, "--to", "ctranslate2"],
        ["export", run, "--to", "onnx"],
        ["export", run, "--to", "safetensors"],
    ):
        nmt.run(*arguments)
    maps = json.loads((tmp_path / "attention.json").read_text())
    assert "</s>" not in maps["source_tokens"]
    assert len(maps["weights"]["cross"][0][0][0]) == len(maps["source_tokens"])
    nmt("export", run, "--to", "transformers").assert_fails(
        2, "does not support model.source_eos=False"
    )
    corpus = "data.train=files(train='text', valid='text', hold_out=False)"
    steps = [
        "train.steps=4",
        "train.valid_every=2",
        "train.schedule=constant(warmup=1)",
        "train.best_metric=loss",
    ]
    nmt.run(
        "train",
        "--init-from",
        run,
        "--run",
        "runs/tuned",
        *(f"--set={option}" for option in (corpus, *steps)),
    )
    scores = [
        [
            float(line)
            for line in nmt(
                "score", "--model", each, "--src", "text.en", "--tgt", "text.de"
            ).out.split()
        ]
        for each in (run, "runs/tuned")
    ]
    assert sum(scores[1]) > sum(scores[0])


def _replace(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda root: (root / name).write_bytes(content) and None


def _edit(position: int, content: bytes) -> Callable[[Path], None]:
    """Overwrite bytes of model.bin."""

    def edit(root: Path) -> None:
        old = (root / "model/model.bin").read_bytes()
        (root / "model/model.bin").write_bytes(
            old[:position] + content + old[position + len(content) :]
        )

    return edit


def _change(name: str, **options: Any) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        (root / name).write_text(json.dumps(json.loads((root / name).read_text()) | options))

    return change


def _truncate(count: int) -> Callable[[Path], None]:
    return lambda root: _replace(
        "model/model.bin", (root / "model/model.bin").read_bytes()[:count]
    )(root)


def _rename_variable(old: str, new: str) -> Callable[[Path], None]:
    def rename(root: Path) -> None:
        content = (root / "model/model.bin").read_bytes()
        names = (struct.pack("<H", len(name) + 1) + name.encode() + b"\0" for name in (old, new))
        assert content.count(old.encode() + b"\0") == 1
        (root / "model/model.bin").write_bytes(content.replace(*names))

    return rename


def _shorten_vocabulary(root: Path) -> None:
    tokens = json.loads((root / "model/shared_vocabulary.json").read_text())
    (root / "model/shared_vocabulary.json").write_text(json.dumps(tokens[:-1]))


def _rename_tokenizer(root: Path) -> None:
    (root / "sentencepiece.model").rename(root / "bpe.model")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_replace("metadata.json", b"{"), "en_de/metadata.json is not a JSON object"),
        (_change("metadata.json", target_prefix="__de__"), "target_prefix=__de__"),
        (
            lambda root: (root / "metadata.json").unlink(),
            "en_de/model is a model of CTranslate2 without its tokenizer",
        ),
        (lambda root: (root / "sentencepiece.model").unlink(), "cannot read"),
        (_replace("sentencepiece.model", b"x"), "is not a SentencePiece model"),
        (_rename_tokenizer, "BPE models are not supported"),
        (lambda root: (root / "model/model.bin").unlink(), "cannot read"),
        (lambda root: shutil.rmtree(root / "model"), "is not a model in a known format"),
        (_replace("model/model.bin", b""), "model.bin is damaged"),
        (_truncate(30), "model.bin is damaged"),
        (_truncate(9000), "model.bin is damaged"),
        (_truncate(-3), "model.bin is damaged"),
        (_edit(0, b"\x07"), "has an unsupported version"),
        (_edit(6, b"Transformer_Spec"[:15]), "has a model of type 'Transformer_Spe'"),
        (_edit(22, b"\x09"), "has an unsupported version"),
        (_edit(26, b"\xff\xff\xff\xff"), "model.bin is damaged"),
        (
            _rename_variable(
                "decoder/layer_0/ffn/linear_1/bias", "decoder/layer_0/ffn/linear_1/biaz"
            ),
            "decoder/layer_0/ffn/linear_1/biaz of",
        ),
        (
            _rename_variable("decoder/layer_norm/gamma", "decoder/layer_norm/gamme"),
            "has no tensor decoder/layer_norm",
        ),
        (_change("model/config.json", layer_norm_epsilon=1e-3), "layer_norm_epsilon=0.001"),
        (_change("model/config.json", add_source_bos=True), "add_source_bos=True"),
        (_change("model/config.json", decoder_start_token="<x>"), "lacks <x>"),
        (_replace("model/config.json", b"["), "config.json is not a JSON object"),
        (_replace("model/shared_vocabulary.json", b'"'), "is not a vocabulary"),
        (_replace("model/shared_vocabulary.json", b'["a", "a"]'), "has repeated tokens"),
        (
            _replace("model/shared_vocabulary.json", b'["<s>", "</s>"]'),
            "does not fit its vocabulary",
        ),
        (_shorten_vocabulary, "embeddings for"),
        (lambda root: (root / "model/shared_vocabulary.json").unlink(), "cannot read"),
    ],
)
def test_malformed_packages_are_one_line(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    package(tmp_path, tied=True)
    damage(tmp_path / "en_de")
    with zipfile.ZipFile(tmp_path / "broken.argosmodel", "w") as archive:
        for file in (tmp_path / "en_de").rglob("*"):
            archive.write(file, file.relative_to(tmp_path))
    nmt = CommandLine(tmp_path)
    nmt("import", "broken.argosmodel").assert_fails(1, message, "hint: ")
    assert not (tmp_path / "runs/broken").exists()


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"activation": ctranslate2.specs.Activation.GELUTanh}, "activation=1"),
        ({"ffn_glu": True}, "decoder/layer_0/ffn/linear_0_noact/bias"),
        ({"layernorm_embedding": True}, "decoder/layernorm_embedding/beta"),
        ({"rms_norm": True}, "encoder/layer_0/self_attention/layer_norm=RMSNorm"),
    ],
)
def test_unsupported_models_are_rejected_by_name(
    tmp_path: Path, options: dict[str, Any], name: str
) -> None:
    package(tmp_path, **options)
    CommandLine(tmp_path)("import", "translate-en_de.argosmodel").assert_fails(
        1, name, "hint: use another model"
    )


def test_damaged_and_unsafe_archives(tmp_path: Path) -> None:
    package(tmp_path)
    content = bytearray((tmp_path / "translate-en_de.argosmodel").read_bytes())
    (tmp_path / "cut.argosmodel").write_bytes(content[:-100])
    content[len(content) // 2] ^= 255
    (tmp_path / "flipped.argosmodel").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "evil.argosmodel", "w") as archive:
        archive.writestr("en_de/../../outside", "text")
    nmt = CommandLine(tmp_path)
    nmt("import", "cut.argosmodel").assert_fails(1, "cut.argosmodel is corrupted or truncated")
    nmt("import", "flipped.argosmodel").assert_fails(
        1, "flipped.argosmodel is corrupted or truncated"
    )
    nmt("import", "evil.argosmodel").assert_fails(
        1, "would write outside its directory (en_de/../../outside)"
    )
    nmt("import", "missing.argosmodel").assert_fails(
        2, "missing.argosmodel is not a directory or zip file"
    )


def test_old_packages_have_flags_in_the_model_and_no_config(tmp_path: Path) -> None:
    package(tmp_path, quantization="int16", tied=True, options={"add_source_eos": True})
    new = import_model(str(tmp_path / "en_de"), tmp_path / "new")
    model = tmp_path / "en_de/model"
    (model / "config.json").unlink()
    tokens = json.loads((model / "shared_vocabulary.json").read_text())
    (model / "shared_vocabulary.json").unlink()
    (model / "shared_vocabulary.txt").write_text("".join(f"{token}\n" for token in tokens))
    content = bytearray((model / "model.bin").read_bytes())
    content[0], content[22] = 5, 4  # version and revision
    (count,) = struct.unpack_from("<I", content, 26)
    name = b"with_source_eos\0"
    struct.pack_into("<I", content, 26, count + 1)
    content[30:30] = struct.pack("<H", len(name)) + name + b"\0\1" + struct.pack("<I", 1) + b"\1"
    for attribute in (
        b"num_heads",
        b"pre_norm",
        b"activation",
    ):  # not separate for encoder and decoder
        for stack, new_name in ((b"encoder/", attribute), (b"decoder/", attribute + b"_unused")):
            old_name = stack + attribute
            start = content.index(struct.pack("<H", len(old_name) + 1) + old_name + b"\0")
            if stack == b"encoder/":
                content[start : start + 3 + len(old_name)] = (
                    struct.pack("<H", len(new_name) + 1) + new_name + b"\0"
                )
            else:
                size = (
                    3
                    + len(old_name)
                    + 6
                    + struct.unpack_from("<I", content, start + 3 + len(old_name) + 2)[0]
                )
                del content[start : start + size]
                count -= 1
    struct.pack_into("<I", content, 26, count + 1)
    (model / "model.bin").write_bytes(content)
    old = import_model(str(tmp_path / "en_de"), tmp_path / "old")
    first, second = (discovery.load(run) for run in (new, old))
    assert first.config == second.config
    weights = second.model.state_dict()
    for key, weight in first.model.state_dict().items():
        assert weight.equal(weights[key]), key
    ctranslate2.Translator(str(model), compute_type="float32")  # reads the file, too
