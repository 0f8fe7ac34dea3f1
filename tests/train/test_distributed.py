"""Training with several processes under torchrun."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from commandline import CommandLine, training, wait_until
from safetensors.torch import load_file
from tiny import losses, same_weights, weights

from nmt.cli import SINGLE_PROCESS_COMMANDS
from nmt.core.config import config_io
from nmt.core.errors import UsageError
from nmt.runs import checkpoint
from nmt.train.distributed import RankGroup

pytestmark = pytest.mark.slow
EXACT = {
    "model__dropout": "0.0",
    "train__label_smoothing": "0.1",
    "train__valid_every": "20",
    "train__steps": "20",
    "train__subword_regularization": "unigram(alpha=0.2)",
    "data__replay": "files(train='text')",
    # Dedup would drop the replay corpus, which equals the training corpus
    "data__clean": "[normalize]",
}
TWO_RANKS = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
TORCHRUN = (
    *TWO_RANKS,
    "-m",
    "nmt",
    "--",
)  # without --, torchrun would parse --run as one of its own options


def finish(process: subprocess.Popen[bytes]) -> tuple[str, str]:
    try:
        out, err = process.communicate(timeout=180)
    finally:
        process.kill()
    return out.decode(), err.decode()


def last_step(nmt: CommandLine, run: str) -> int:
    return checkpoint.read_progress(checkpoint.checkpoints(nmt.directory / run)[-1]).step


@pytest.mark.parametrize(("overlap", "all_reduce_precision"), [("false", "fp32"), ("true", "bf16")])
def test_two_ranks_equal_gradient_accumulation_over_two_batches(
    overlap: str, all_reduce_precision: str, nmt: CommandLine
) -> None:
    precision = ("--precision", "fp32")
    nmt.run(
        *training(
            "runs/alone", "files(train='text')", *precision, train__grad_accumulation="2", **EXACT
        )
    )
    options = EXACT | {
        "train__overlap_all_reduce": overlap,
        "train__all_reduce_precision": all_reduce_precision,
    }
    done = nmt.process(
        *training("runs/two", "files(train='text')", *precision, **options), program=TORCHRUN
    ).check()
    assert done.out == "runs/two/step-000020\n"  # only rank 0 prints
    assert done.err.count("nmt: update 20: validation loss") == 1
    assert "2 × cpu" in done.err
    alone, two = nmt.directory / "runs/alone", nmt.directory / "runs/two"
    first, second = weights(alone), weights(two)
    difference = max(float((first[name] - second[name]).abs().max()) for name in first)
    if all_reduce_precision == "fp32":
        assert difference < 1e-6
        assert losses(alone) == pytest.approx(losses(two), abs=1e-6)
    else:
        assert difference > 1e-5
        assert losses(alone) == pytest.approx(losses(two), abs=1e-3)
    assert checkpoint.read_progress(nmt.directory / "runs/two/step-000020").precision == "float32"


def test_resuming_with_two_ranks_is_exact_and_the_number_of_ranks_can_change(
    nmt: CommandLine,
) -> None:
    options = {
        "train__steps": "16",
        "train__valid_every": "8",
        "train__log_every": "1",
        "train__source_noise": "lowercase_no_punctuation(p=0.3)",
        "train__subword_regularization": "unigram(alpha=0.2)",
    }
    nmt.process(*training("runs/uninterrupted", **options), program=TORCHRUN).check()
    shutil.copytree(nmt.directory / "runs/uninterrupted", nmt.directory / "runs/interrupted")
    shutil.rmtree(nmt.directory / "runs/interrupted/step-000016")
    resume = ("train", "--run", "runs/interrupted", "--resume")
    nmt.process(*resume, program=TORCHRUN).check()
    runs = [nmt.directory / "runs" / name for name in ("uninterrupted", "interrupted")]
    assert same_weights(*runs)
    assert losses(runs[0]) == losses(runs[1])
    nmt.run(*resume, "--set", "train.steps=18")
    assert last_step(nmt, "runs/interrupted") == 18
    nmt.process(*resume, "--set", "train.steps=20", program=TORCHRUN).check()
    assert last_step(nmt, "runs/interrupted") == 20


UPDATES = """
from pathlib import Path

import torch
from safetensors.torch import save_file

from nmt.core.config import config_io
from nmt.data.prepare import prepare
from nmt.train.distributed import process_group
from nmt.train.trainer import Trainer

config, cpu = config_io.load(Path("config.yaml")), torch.device("cpu")
with process_group(cpu) as group:
    trainer = Trainer(config, Path("runs/none"), prepare(config), cpu, torch.float32, group)
    trainer.model.train()
    for update, _ in zip(trainer.updates(), range(10)):
        trainer.update(update, 10)
    save_file(trainer.model.state_dict(), f"rank-{group.rank}-of-{group.world_size}.safetensors")
"""


def test_muon_and_a_teacher_compute_the_same_update_on_every_rank(nmt: CommandLine) -> None:
    options = [
        "data.train=files(train='text')",
        "train.optimizer=muon",
        "train.teacher=runs/tiny",
        "model.dropout=0.0",
        f"tokenizer.model={nmt.directory / 'runs/tiny/spm.model'}",
        "train.schedule=constant(warmup=1)",
    ]
    tiny = config_io.load(nmt.directory / "runs/tiny/config.yaml").model
    (nmt.directory / "updates.py").write_text(UPDATES)
    for ranks, accumulation in ((1, 2), (2, 1)):
        config = config_io.load(None, [*options, f"train.grad_accumulation={accumulation}"])
        config = replace(config, model=replace(tiny, dropout=0.0))
        (nmt.directory / "config.yaml").write_text(config_io.dump(config))
        nmt.process(program=(*(TWO_RANKS if ranks > 1 else ()), "updates.py")).check()
    alone, one, two = (
        load_file(nmt.directory / f"rank-{rank}.safetensors")
        for rank in ("0-of-1", "0-of-2", "1-of-2")
    )
    assert all(torch.equal(one[name], two[name]) for name in one)
    # Orthogonalization amplifies rounding differences of small singular values.
    assert all((one[name] - alone[name]).abs().max() < 1e-3 for name in one)


def children(process: subprocess.Popen[bytes]) -> list[int]:
    listing = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [int(number) for number in listing.split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
@pytest.mark.parametrize("rank", [0, 1])
def test_killed_rank_ends_training(rank: int, nmt: CommandLine) -> None:
    changes = {"train__steps": "1000000", "train__valid_every": "10"}
    process = nmt.start(*training("runs/dies", "files(train='text')", **changes), program=TORCHRUN)
    wait_until(process, lambda: checkpoint.checkpoints(nmt.directory / "runs/dies"))
    os.kill(sorted(children(process))[rank], signal.SIGKILL)
    _, err = finish(process)
    assert process.returncode != 0
    assert "Signal 9 (SIGKILL)" in err
    assert checkpoint.load_latest_intact(nmt.directory / "runs/dies") is not None


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_to_one_rank_stops_all_ranks_and_saves(
    number: signal.Signals, nmt: CommandLine
) -> None:
    changes = {"train__steps": "1000000", "train__valid_every": "1000000", "train__log_every": "1"}
    process = nmt.start(*training("runs/stops", "files(train='text')", **changes), program=TORCHRUN)
    wait_until(process, (nmt.directory / "runs/stops/metrics.jsonl").exists)
    os.kill(sorted(children(process))[1], number)
    _, err = finish(process)
    assert process.returncode == 1, err  # of torchrun; its commands ended with exit code 75
    assert "exitcode  : 75" in err
    assert re.search(
        r"stopped and saved at update .*; continue with: torchrun OPTIONS -m nmt -- train --run",
        err,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_to_torchrun_saves(number: signal.Signals, nmt: CommandLine) -> None:
    changes = {"train__steps": "1000000", "train__valid_every": "1000000", "train__log_every": "1"}
    process = nmt.start(*training("runs/stops", "files(train='text')", **changes), program=TORCHRUN)
    wait_until(process, (nmt.directory / "runs/stops/metrics.jsonl").exists)
    os.kill(process.pid, number)
    _, err = finish(process)
    assert process.returncode != 0, err
    assert "stopped and saved at update" in err
    assert last_step(nmt, "runs/stops") > 0


def test_ranks_with_different_data_do_not_train(nmt: CommandLine) -> None:
    script = (
        "import os\n\nfrom nmt.cli import main\n\nos.chdir(f\"rank{os.environ['RANK']}\")\nmain()\n"
    )
    (nmt.directory / "main.py").write_text(script)
    for rank in range(2):
        (nmt.directory / f"rank{rank}").mkdir()
        for language in ("en", "de"):
            text = (nmt.directory / f"text.{language}").read_text()
            (nmt.directory / f"rank{rank}/text.{language}").write_text(text + "one more\n" * rank)
    process = nmt.start(*training("runs/a"), program=(*TWO_RANKS, "main.py", "--"))
    _, err = finish(process)
    assert process.returncode == 1, err
    assert "nmt: error: (rank 0) the ranks have different options or data" in err
    assert 'File "' not in err.split("nmt: error:")[0]
    assert not (nmt.directory / "rank0/runs/a").exists()


def test_an_error_of_the_first_rank_ends_the_others_without_a_message() -> None:
    class Other(RankGroup):
        def broadcast(self, value: object) -> Any:
            assert value is None
            return pickle.loads(pickle.dumps(UsageError("it is locked", "wait")))

    @contextmanager
    def locked() -> Iterator[None]:
        raise UsageError("it is locked", "wait")
        yield

    with pytest.raises(UsageError, match="it is locked"), RankGroup().on_main(locked()):
        pass
    with pytest.raises(SystemExit, match="2"), Other(1, 2).on_main(locked()):
        pass


@pytest.mark.parametrize("command", SINGLE_PROCESS_COMMANDS)
def test_commands_for_a_single_process(command: str, nmt: CommandLine) -> None:
    under_torchrun = CommandLine(nmt.directory, nmt.environment | {"WORLD_SIZE": "2", "RANK": "1"})
    under_torchrun.run(command, "--help")
    under_torchrun(command).assert_fails(
        2, f"(rank 1) nmt {command} supports a single process only", "torchrun"
    )


def test_a_world_size_without_torchrun_is_an_error(nmt: CommandLine) -> None:
    lone = CommandLine(nmt.directory, nmt.environment | {"WORLD_SIZE": "2"})
    lone(*training("runs/lone")).assert_fails(
        2, "WORLD_SIZE is 2, but torchrun did not start this process", "unset WORLD_SIZE"
    )
