"""The distillation loss equals its formula, and a run with a teacher resumes, reproduces and
rejects other teachers."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from test_train import check_resume, run
from tiny import config, losses, same_weights
from torch.amp.grad_scaler import GradScaler

from nmt.core.config import ModelConfig, TrainConfig, config_io
from nmt.core.errors import CheckpointError, ConfigError, NMTError, TrainingError
from nmt.data.batching import Batch, collate
from nmt.model.build import build_model
from nmt.model.seq2seq import Seq2Seq
from nmt.runs import run_report
from nmt.training import loss as loss_module
from nmt.training import session
from nmt.training.optim import adamw
from nmt.training.step import batch_loss, train_step
from nmt.training.word_distillation import Teacher

VOCABULARY = 23
PAIRS = [([5, 6, 7], [8, 9]), ([10, 11], [12]), ([13] * 5, [14] * 7), ([15], [16, 17, 18])]


def make(seed: int, dim: int = 16) -> Seq2Seq:
    torch.manual_seed(seed)
    model = build_model(
        ModelConfig(
            dim=dim,
            heads=2,
            ffn_dim=32,
            encoder_layers=1,
            decoder_layers=1,
            dropout=0.0,
            output_bias=True,
        ),
        VOCABULARY,
    )
    torch.nn.init.normal_(model.output_bias_V)
    return model


def formula(student: Seq2Seq, teacher: Teacher, batch: Batch, smoothing: float) -> torch.Tensor:
    """Return the loss with plain PyTorch and full distributions."""

    def log_probs(model: Seq2Seq) -> torch.Tensor:
        hidden_ND = model(batch.src_BS, batch.src_mask_BS, batch.tgt_in_BT, batch.target_index_N)
        return (hidden_ND @ model.output_weight_VD.t() + model.output_bias_V).log_softmax(-1)

    prob_NV = log_probs(teacher.model).exp().detach()
    threshold_N1 = prob_NV.sort(-1, descending=True).values[:, [min(teacher.top_k, VOCABULARY) - 1]]
    is_other = prob_NV < threshold_N1
    rest_N1 = (prob_NV * is_other).sum(-1, keepdim=True) / is_other.sum(-1, keepdim=True).clamp(
        min=1
    )
    q_NV = torch.where(is_other, rest_N1, prob_NV)
    log_p_NV = log_probs(student)
    label = F.cross_entropy(log_p_NV, batch.labels_N, label_smoothing=smoothing, reduction="sum")
    return (1 - teacher.weight) * label + teacher.weight * F.kl_div(log_p_NV, q_NV, reduction="sum")


@pytest.mark.parametrize("chunk", [3, 1024])
@pytest.mark.parametrize(
    ("weight", "top_k", "smoothing"), [(0.3, 4, 0.1), (1.0, 1, 0.1), (0.7, 100, 0.0)]
)
def test_loss_and_gradients_equal_the_formula_in_float64(
    weight: float, top_k: int, smoothing: float, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_module, "CHUNK", chunk)
    student, teacher, batch = make(0), Teacher(make(1, dim=8), weight, top_k), collate(PAIRS)
    exact_student, exact_teacher = (
        copy.deepcopy(student).double(),
        copy.deepcopy(teacher.model).double(),
    )
    expected = formula(exact_student, Teacher(exact_teacher, weight, top_k), batch, smoothing)
    expected.backward()
    loss = batch_loss(student, batch, smoothing=smoothing, teacher=teacher)
    loss.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    for parameter, exact in zip(student.parameters(), exact_student.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad.double(), exact.grad, atol=1e-5, rtol=1e-5)
    assert all(parameter.grad is None for parameter in teacher.model.parameters())


def test_loss_of_the_teacher_itself_is_zero() -> None:
    student = make(0)
    teacher = Teacher(copy.deepcopy(student), 1.0, VOCABULARY)
    loss = batch_loss(student, collate(PAIRS), smoothing=0.1, teacher=teacher)
    loss.backward()
    assert loss.item() == pytest.approx(0, abs=1e-4)
    assert all(
        parameter.grad is None or parameter.grad.abs().max() < 1e-5
        for parameter in student.parameters()
    )


def test_memory_of_the_distribution_is_bounded_by_the_number_of_tokens() -> None:
    prob_NK, index_NK, rest_N1 = Teacher(make(1), 0.5, 3).distribution(collate(PAIRS))
    num_positions = sum(len(target) + 1 for _, target in PAIRS)
    assert prob_NK.shape == index_NK.shape == (num_positions, 3)
    torch.testing.assert_close(
        prob_NK.sum(1, keepdim=True) + (VOCABULARY - 3) * rest_N1, torch.ones(num_positions, 1)
    )
    assert not prob_NK.requires_grad


def test_microbatches_have_the_gradient_of_one_batch() -> None:
    student, teacher = make(0), Teacher(make(1), 0.5, 4)
    options = TrainConfig(clip_norm=0.0)
    optimizer = adamw(student, options)  # with learning rate 0
    gradients = []
    for microbatches in (
        [collate(PAIRS)],
        [collate(PAIRS[:1]), collate(PAIRS[1:])],
        [collate([pair]) for pair in PAIRS],
    ):
        train_step(student, microbatches, optimizer, options, teacher=teacher).read()
        gradients.append(
            torch.cat([p.grad.flatten() for p in student.parameters() if p.grad is not None])
        )
    for other in gradients[1:]:
        torch.testing.assert_close(other, gradients[0], atol=1e-6, rtol=1e-4)


def test_fp16_gradients_are_unscaled() -> None:
    student, teacher, options = make(0), Teacher(make(1), 0.5, 4), TrainConfig()
    norms = [
        train_step(
            student,
            [collate(PAIRS)],
            adamw(student, options),
            options,
            teacher=teacher,
            scaler=scaler,
        )
        .read()
        .grad_norm
        for scaler in (None, GradScaler("cpu", init_scale=2.0**10))
    ]
    assert norms[1] == pytest.approx(norms[0], rel=1e-5)


# ---- runs


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    run(config(tmp_path, "train.steps=2", "train.valid_every=2"), tmp_path, "teacher")
    return tmp_path


def with_teacher(directory: Path, *changes: str, teacher: str = "teacher") -> list[str]:
    return [
        f"train.teacher={directory / teacher}",
        "train.schedule=inverse_sqrt(peak=1e-2, warmup=4)",
        *changes,
    ]


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_resumed_run_is_identical_to_an_uninterrupted_one(directory: Path, precision: str) -> None:
    experiment = config(
        directory, *with_teacher(directory, "train.steps=6", "train.valid_every=50")
    )
    check_resume(experiment, directory, 3, precision)


def test_weights_and_data_order_do_not_depend_on_the_size_of_the_teacher(directory: Path) -> None:
    """The loss of the first update differs from that without a teacher, but initial weights and
    dropout do not."""
    run(config(directory, "model.dim=32", "train.steps=1"), directory, "large")
    ignored = ("train.distill_weight=1e-9", "train.steps=6")
    experiments = [
        config(directory, *with_teacher(directory, *ignored, teacher=name))
        for name in ("teacher", "large")
    ]
    for name, experiment in zip(("one", "two"), experiments, strict=True):
        run(experiment, directory, name)
    assert losses(directory / "one") == pytest.approx(losses(directory / "two"), abs=1e-4)


def test_teacher_is_recorded_and_repeated(directory: Path) -> None:
    run(config(directory, *with_teacher(directory, "train.distill_top_k=4")), directory)
    training = run_report.collect(directory / "run")["training"]
    assert training["teacher"]["model"] == "teacher"
    assert (training["distill_weight"], training["distill_top_k"]) == (0.5, 4)
    card = (directory / "run" / "README.md").read_text()
    assert "- distilled from teacher/step-0000" in card
    assert "- distilled with weight 0.5 from the 4 most probable tokens of teacher\n" in card
    run(config_io.load(directory / "run/config.yaml"), directory, "again")
    assert same_weights(directory / "run", directory / "again")
    run(config(directory, "seed=2", "train.steps=2"), directory, "other")
    (directory / "teacher").rename(directory / "moved")
    (directory / "other").rename(directory / "teacher")
    with pytest.raises(TrainingError, match=r"train\.teacher of .* has changed"):
        run(config(directory, *with_teacher(directory, "train.steps=14")), directory, resume=True)
    with pytest.raises(TrainingError, match=r"train\.teacher of .* has changed"):
        run(config(directory, "train.steps=14"), directory, resume=True)
    run(
        config(directory, *with_teacher(directory, "train.steps=14", teacher="moved")),
        directory,
        resume=True,
    )


@pytest.mark.slow
def test_plan_includes_the_teacher(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    distribution = Teacher.distribution
    monkeypatch.setattr(
        Teacher, "distribution", lambda *arguments: (calls.append(1), distribution(*arguments))[1]
    )
    session.estimate_training(
        config(directory, *with_teacher(directory)), device="cpu", precision="fp32"
    )
    assert len(calls) > 3


def test_teacher_that_does_not_fit_is_rejected(directory: Path) -> None:
    def assert_rejected(
        kind: type[NMTError], message: str, *changes: str, teacher: str = "teacher"
    ) -> None:
        with pytest.raises(kind, match=message) as caught:
            run(config(directory, *with_teacher(directory, *changes, teacher=teacher)), directory)
        assert caught.value.hint
        assert not (directory / "run").exists()

    assert_rejected(
        ConfigError, "translates from en to de, not from de to en", "data.src=de", "data.tgt=en"
    )
    assert_rejected(ConfigError, r"another model\.source_eos", "model.source_eos=false")
    assert_rejected(CheckpointError, "there is no model at", teacher="run")
    learned = "model.position_encoding=learned(max_positions=64)"
    run(config(directory, learned, "train.steps=1"), directory, "short")
    assert_rejected(
        ConfigError, "must not exceed the positions of", "train.max_length=65", teacher="short"
    )
    assert_rejected(
        CheckpointError,
        "differs from the tokenizer of the prepared data",
        "tokenizer.vocab_size=290",
    )
    with pytest.raises(ConfigError, match="is the run that is being trained"):
        run(config(directory, *with_teacher(directory)), directory, "teacher", resume=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("train.teacher=x", "train.distill_weight=2"),
            "train.distill_weight must be between 0 and 1, got 2.0",
        ),
        (
            ("train.teacher=x", "train.distill_weight=-0.1"),
            "train.distill_weight must be between 0 and 1",
        ),
        (
            ("train.teacher=x", "train.distill_weight=nan"),
            "train.distill_weight must be between 0 and 1",
        ),
        (
            ("train.teacher=x", "train.distill_weight=0"),
            "train.teacher is set, but train.distill_weight is 0",
        ),
        (("train.teacher=x", "train.distill_top_k=0"), "train.distill_top_k must be at least 1"),
        (
            ("train.distill_weight=0.7",),
            "train.distill_weight is set, but train.teacher names no model",
        ),
        (
            ("train.distill_top_k=3",),
            "train.distill_top_k is set, but train.teacher names no model",
        ),
    ],
)
def test_invalid_options_raise(options: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config_io.load(None, options)
