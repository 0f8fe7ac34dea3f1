"""Import of models of other toolkits. Hugging Face Transformers and its own translations are the reference."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import sentencepiece as spm
import torch
from commandline import CommandLine, sentences

from nmt.imports import import_model
from nmt.inference.translator import Translator
from nmt.runs import discovery

transformers = pytest.importorskip("transformers")


def marian_tokenizer(directory: Path, *, separate: bool = False) -> int:
    """Write the tokenizer files of a Marian model; return the size of its vocabulary."""
    models, vocabularies = [], []
    for lines, name in zip(sentences(400), ("source.spm", "target.spm"), strict=True):
        model = io.BytesIO()
        spm.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=model, vocab_size=70, minloglevel=2, hard_vocab_limit=False
        )
        (directory / name).write_bytes(model.getvalue())
        models.append(spm.SentencePieceProcessor(model_proto=model.getvalue()))
    for model in models:  # as Marian writes them: the end of the sentence, unknown pieces, then by frequency
        vocabularies.append([model.id_to_piece(i) for i in range(3, model.get_piece_size())])
    if not separate:
        vocabularies = [sorted({*vocabularies[0], *vocabularies[1]})] * 2
    size = max(map(len, vocabularies))  # Transformers has one id for the padding of both vocabularies
    for name, pieces in zip(("vocab.json", "target_vocab.json")[: 1 + separate], vocabularies, strict=False):
        padded = [*pieces, *(f"unused{i}" for i in range(size - len(pieces)))]
        ids = {piece: i for i, piece in enumerate(["</s>", "<unk>", ">>deu<<", *padded, "<pad>"])}
        (directory / name).write_text(json.dumps(ids, ensure_ascii=False))
    options = {"source_lang": "en", "target_lang": "de", "separate_vocabs": separate, "model_max_length": 512}
    (directory / "tokenizer_config.json").write_text(json.dumps(options | {"tokenizer_class": "MarianTokenizer"}))
    return len(ids)


def marian(directory: Path, *, separate: bool = False, **options: Any) -> Any:
    """Write a Marian model with random weights as OPUS-MT publishes them, and return it."""
    directory.mkdir(parents=True)
    torch.manual_seed(1)
    size = marian_tokenizer(directory, separate=separate)
    sizes = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    ids = {"eos_token_id": 0, "pad_token_id": size - 1, "decoder_start_token_id": size - 1}
    config = transformers.MarianConfig(
        vocab_size=size, decoder_vocab_size=size, scale_embedding=True,
        max_position_embeddings=512, num_beams=4, bad_words_ids=[[size - 1]], forced_eos_token_id=0,
        share_encoder_decoder_embeddings=not separate, tie_word_embeddings=not separate,
        **sizes, **heads, **ids, **{"activation_function": "swish"} | options,
    )  # fmt: skip
    model = transformers.MarianMTModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                parameter.add_(torch.randn_like(parameter) * 0.3 / parameter.shape[-1] ** 0.5)
        model.final_logits_bias.normal_()
        model.final_logits_bias[0, -1] = 0.0
        model.final_logits_bias[0, 0] += 3.0  # translations end
        for table in {model.get_encoder().embed_tokens, model.get_decoder().embed_tokens}:
            table.weight[-1] = 0.0
    model.save_pretrained(directory)
    return model


@pytest.fixture(params=["shared", "separate", "relu"])
def published(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Any]:
    directory = tmp_path / "opus-mt-en-de"
    options: dict[str, Any] = {"activation_function": "relu"} if request.param == "relu" else {}
    return directory, marian(directory, separate=request.param == "separate", **options)


def test_log_probabilities_and_translations_equal_transformers(published: tuple[Path, Any], tmp_path: Path) -> None:
    directory, model = published
    run = import_model(str(directory), tmp_path / "run")
    tokenizer = transformers.MarianTokenizer.from_pretrained(directory)
    source, target = (lines[:8] for lines in sentences(8))
    inputs = tokenizer(source, text_target=target, return_tensors="pt", padding=True)
    translator = Translator.load(run, "cpu", "fp32")
    start = torch.full((len(target), 1), model.config.decoder_start_token_id)
    labels = inputs.pop("labels")
    with torch.no_grad():
        outputs = model(**inputs, decoder_input_ids=torch.cat([start, labels[:, :-1]], 1))
        logits = outputs.logits
        logits[:, :, model.config.pad_token_id] = -torch.inf
        expected = logits.log_softmax(-1).gather(2, labels[:, :, None])[:, :, 0]
    for i, score in enumerate(translator.score(zip(source, target, strict=True))):
        real = expected[i][labels[i] != model.config.pad_token_id]
        assert score.log_prob == pytest.approx(float(real.sum()), abs=1e-3)
    expected_texts = []
    for line in source:
        one = tokenizer([line], return_tensors="pt")
        options = {"num_beams": 4, "early_stopping": "never", "length_penalty": 1.0, "forced_eos_token_id": 0}
        output = model.generate(**one, **options, max_length=2 * one.input_ids.shape[1] + 12)
        expected_texts += tokenizer.batch_decode(output, skip_special_tokens=True)
    search = "beam(beam_size=4, length_normalization='average')"
    assert list(translator.translate(source, search)) == expected_texts
    assert len({*expected_texts}) > 3


def test_export_of_an_import_is_identical(nmt: CommandLine, tmp_path: Path) -> None:
    loaded = discovery.load(nmt.directory / "runs/tiny")
    assert loaded
