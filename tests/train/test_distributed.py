"""Training with several processes under torchrun."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
import torch.distributed.run as torchrun
from commandline import STREAMS, CommandLine, finish, training, wait_until
from safetensors.torch import load_file, save_file
from tiny import losses, same_weights, weights
from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

from nmt import cli
from nmt.cli import SINGLE_PROCESS_COMMANDS
from nmt.core.config import config_io
from nmt.core.errors import UsageError
from nmt.data.prepare import prepare
from nmt.runs import checkpoint
from nmt.training.distributed import RankGroup, process_group
from nmt.training.trainer import Trainer

pytestmark = pytest.mark.slow
EXACT = {
    "model__dropout": "0.0",
    "train__label_smoothing": "0.1",
    "train__valid_every": "10",
    "train__steps": "10",
    "train__subword_regularization": "unigram(alpha=0.2)",
    "data__replay": "files(train='text')",
    # Dedup would drop the replay corpus, which equals the training corpus
    "data__clean": "[normalize]",
}
FOREVER = {"train__steps": "1000000", "train__valid_every": "1000000", "train__log_every": "1"}

# Without --, torchrun would parse --run as one of its own options.
TORCHRUN_OPTIONS = ("--standalone", "--nproc-per-node", "2", "-m", "nmt", "--")


def fork_torchrun(nmt: CommandLine, *command: str) -> subprocess.Popen[bytes]:
    """Start a command with torchrun on two ranks; torchrun and the ranks are forks."""
    return nmt.fork(*TORCHRUN_OPTIONS, *command, main=run_torchrun_with_forks)


def run_torchrun() -> None:
    """Run torchrun."""
    torchrun.main()
    sys.exit()  # the signal handlers of torchrun remain


def run_torchrun_with_forks() -> None:
    """Run torchrun, whose processes are forks."""

    def start_rank(
        self: SubprocessHandler, words: tuple[str, ...], environment: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        interpreter = (sys.executable, "-u", "-m", "nmt")
        assert words[: len(interpreter)] == interpreter
        inherited = dict.fromkeys(STREAMS)
        return CommandLine(Path.cwd(), environment).fork(
            *words[len(interpreter) :],
            preexec_fn=reset_signals,
            start_new_session=True,
            **inherited,
        )

    with mock.patch.object(SubprocessHandler, "_popen", start_rank):
        run_torchrun()


def reset_signals() -> None:
    """Remove the signal handlers of torchrun."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def two_ranks(
    nmt: CommandLine,
    *command: str,
    directories: tuple[str, str] = (".", "."),
    main: Callable[[], object] = cli.main,
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start two forks with the variables and the store of torchrun: its processes would import
    PyTorch, which takes most of the time."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    variables = {
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
    }
    processes = []
    for rank, directory in enumerate(directories):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        lone = CommandLine(nmt.directory / directory, nmt.environment | variables | own)
        processes.append(lone.fork(*command, main=main))
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def run_on_two_ranks(nmt: CommandLine, *command: str, **options: Any) -> None:
    with two_ranks(nmt, *command, **options) as processes:
        for process in processes:
            finish(process).check()


def last_step(nmt: CommandLine, run: str) -> int:
    return checkpoint.read_progress(checkpoint.checkpoints(nmt.directory / run)[-1]).step


def test_two_ranks_equal_gradient_accumulation_over_two_batches(nmt: CommandLine) -> None:
    precision = ("--precision", "fp32")
    nmt.run(
        *training(
            "runs/alone", "files(train='text')", *precision, train__grad_accumulation="2", **EXACT
        )
    )
    alone = nmt.directory / "runs/alone"
    differences = {}
    for all_reduce_precision, tolerance in (("fp32", 1e-6), ("bf16", 1e-3)):
        options = EXACT | {"train__all_reduce_precision": all_reduce_precision}
        run = f"runs/{all_reduce_precision}"
        run_on_two_ranks(nmt, *training(run, "files(train='text')", *precision, **options))
        two = nmt.directory / run
        one, other = weights(alone), weights(two)
        differences[all_reduce_precision] = max(
            float((one[name] - other[name]).abs().max()) for name in one
        )
        assert losses(alone) == pytest.approx(losses(two), abs=tolerance)
        assert checkpoint.read_progress(two / "step-000010").precision == "float32"
    assert differences["fp32"] < 1e-6
    assert differences["bf16"] > 1e-5


def test_resuming_with_two_ranks_is_exact_and_the_number_of_ranks_can_change(
    nmt: CommandLine,
) -> None:
    options = {
        "train__steps": "8",
        "train__valid_every": "4",
        "train__log_every": "1",
        "train__source_noise": "lowercase_no_punctuation(p=0.3)",
        "train__subword_regularization": "unigram(alpha=0.2)",
    }
    run_on_two_ranks(nmt, *training("runs/uninterrupted", **options))
    shutil.copytree(nmt.directory / "runs/uninterrupted", nmt.directory / "runs/interrupted")
    shutil.rmtree(nmt.directory / "runs/interrupted/step-000008")
    resume = ("train", "--run", "runs/interrupted", "--resume")
    run_on_two_ranks(nmt, *resume)
    runs = [nmt.directory / "runs" / name for name in ("uninterrupted", "interrupted")]
    assert same_weights(*runs)
    assert losses(runs[0]) == losses(runs[1])
    nmt.run(*resume, "--set", "train.steps=10")
    assert last_step(nmt, "runs/interrupted") == 10
    run_on_two_ranks(nmt, *resume, "--set", "train.steps=12")
    assert last_step(nmt, "runs/interrupted") == 12


def update() -> None:
    """Make ten updates with config.yaml, and save the weights of this rank."""
    experiment, cpu = config_io.load(Path("config.yaml")), torch.device("cpu")
    with process_group(cpu) as group:
        data = prepare(experiment)
        trainer = Trainer(experiment, Path("runs/none"), data, cpu, torch.float32, group)
        trainer.model.train()
        for microbatches, _ in zip(trainer.updates(), range(10), strict=False):
            trainer.update(microbatches, 10)
        path = f"rank-{group.rank}-of-{group.world_size}.safetensors"
        save_file(trainer.model.state_dict(), path)


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
    for ranks, accumulation in ((1, 2), (2, 1)):
        config = config_io.load(None, [*options, f"train.grad_accumulation={accumulation}"])
        config = replace(config, model=replace(tiny, dropout=0.0))
        (nmt.directory / "config.yaml").write_text(config_io.dump(config))
        if ranks == 1:
            finish(nmt.fork(main=update)).check()
        else:
            run_on_two_ranks(nmt, main=update)
    alone, one, two = (
        load_file(nmt.directory / f"rank-{rank}.safetensors")
        for rank in ("0-of-1", "0-of-2", "1-of-2")
    )
    assert all(torch.equal(one[name], two[name]) for name in one)
    # Orthogonalization amplifies rounding differences of small singular values.
    assert all((one[name] - alone[name]).abs().max() < 1e-3 for name in one)


def test_two_ranks_under_torchrun(nmt: CommandLine) -> None:
    command = training("runs/two", train__steps="4", train__valid_every="4")
    # Only torchrun is a fork; its ranks are new processes.
    done = finish(nmt.fork(*TORCHRUN_OPTIONS, *command, main=run_torchrun)).check()
    assert done.out == "runs/two/step-000004\n"  # only rank 0 prints
    assert done.err.count("nmt: update 4: validation loss") == 1
    assert "2 × cpu" in done.err


def children(process: subprocess.Popen[bytes]) -> list[int]:
    listing = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [int(number) for number in listing.split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_killed_rank_ends_torchrun(nmt: CommandLine) -> None:
    changes = {"train__steps": "1000000", "train__valid_every": "2"}
    process = fork_torchrun(nmt, *training("runs/dies", **changes))
    wait_until(process, lambda: checkpoint.checkpoints(nmt.directory / "runs/dies"))
    os.kill(sorted(children(process))[1], signal.SIGKILL)
    _, err = process.communicate(timeout=180)
    assert process.returncode != 0
    assert b"Signal 9 (SIGKILL)" in err
    assert checkpoint.load_latest_intact(nmt.directory / "runs/dies") is not None


@pytest.mark.parametrize("rank", [0, 1])
def test_killed_rank_ends_the_other(rank: int, nmt: CommandLine) -> None:
    changes = {"train__steps": "1000000", "train__valid_every": "2"}
    with two_ranks(nmt, *training("runs/dies", **changes)) as processes:
        wait_until(processes[0], lambda: checkpoint.checkpoints(nmt.directory / "runs/dies"))
        processes[rank].kill()
        done = finish(processes[1 - rank])
    assert done.code == 1
    assert "another process of this training run has exited" in done.err
    assert checkpoint.load_latest_intact(nmt.directory / "runs/dies") is not None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_to_one_rank_stops_all_ranks_and_saves(
    number: signal.Signals, nmt: CommandLine
) -> None:
    with two_ranks(nmt, *training("runs/stops", **FOREVER)) as processes:
        wait_until(processes[0], (nmt.directory / "runs/stops/metrics.jsonl").exists)
        processes[1].send_signal(number)
        first, second = [finish(process) for process in processes]
    assert (first.code, second.code) == (75, 75)
    assert re.search(
        r"stopped and saved at update .*; continue with: torchrun OPTIONS -m nmt -- train --run",
        first.err,
    )
    assert last_step(nmt, "runs/stops") > 0


def test_signal_to_torchrun_saves(nmt: CommandLine) -> None:
    process = fork_torchrun(nmt, *training("runs/stops", **FOREVER))
    wait_until(process, (nmt.directory / "runs/stops/metrics.jsonl").exists)
    process.terminate()
    _, err = process.communicate(timeout=180)
    assert process.returncode != 0
    assert b"stopped and saved at update" in err
    assert last_step(nmt, "runs/stops") > 0


def test_ranks_with_different_data_do_not_train(nmt: CommandLine) -> None:
    for rank in range(2):
        (nmt.directory / f"rank{rank}").mkdir()
        for language in ("en", "de"):
            text = (nmt.directory / f"text.{language}").read_text()
            (nmt.directory / f"rank{rank}/text.{language}").write_text(text + "one more\n" * rank)
    directories = ("rank0", "rank1")
    with two_ranks(nmt, *training("runs/a"), directories=directories) as processes:
        first, second = [finish(process) for process in processes]
    assert (first.code, second.code) == (1, 1)
    assert first.errors[0].startswith("(rank 0) the ranks have different options or data")
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


@pytest.mark.parametrize("rank", ["", "2", "one"])
def test_a_world_size_without_torchrun_is_an_error(rank: str, nmt: CommandLine) -> None:
    place = {"WORLD_SIZE": "2", "RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "9"}
    lone = CommandLine(nmt.directory, nmt.environment | place)
    lone(*training("runs/lone")).assert_fails(
        2, "WORLD_SIZE is 2, but torchrun did not start this process", "unset WORLD_SIZE"
    )
