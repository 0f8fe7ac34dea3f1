"""What other engines are given is the model itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from commandline import CommandLine

from nmt import checkpoint
from nmt.data.batching import collate
from nmt.errors import UsageError
from nmt.export.ctranslate2 import export

LINES = ["the small dog sees the old tree.", "the heavy bird carries the green stone.", "the dog."]


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("tied", ["true", "false"])
def test_ctranslate2_scores_as_nmt_does(norm: str, tied: str, nmt: CommandLine) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2")
    assert nmt.train("runs/x", model__norm=norm, model__tied=tied, train__steps="10").code == 0
    loaded = checkpoint.load(nmt.folder / "runs/x")
    folder = nmt.folder / "ct2"
    folder.mkdir()
    export(loaded, folder)
    engine = ctranslate2.Translator(str(folder), compute_type="float32")
    for line in LINES:
        ids = loaded.tokenizer.encode(line)
        batch = collate([(ids, ids)])
        with torch.no_grad():
            hidden_ND = loaded.model(batch.src_BS, batch.src_mask_BS, batch.tgt_in_BT, batch.places_N)
            wanted_N = loaded.model.project(hidden_ND).log_softmax(-1).gather(1, batch.target_N[:, None])[:, 0]
        (found,) = engine.score_batch([loaded.tokenizer.pieces(ids)], [loaded.tokenizer.pieces(ids)])
        assert found.log_probs == pytest.approx(wanted_N.tolist(), abs=1e-3)


def test_without_ctranslate2_it_says_what_to_install(nmt: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ctranslate2", None)
    with pytest.raises(UsageError, match="CTranslate2 is not installed"):
        export(checkpoint.load(nmt.folder / "runs/tiny"), Path("none"))
