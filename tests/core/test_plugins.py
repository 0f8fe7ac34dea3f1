"""Plug-ins: the examples of docs/plugins.md, whose modules nmt imports, and whose it does not."""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from commandline import TINY, CommandLine, Done, training
from conftest import copy
from tiny import config

import nmt as package
from nmt.core import plugins
from nmt.core.config import config_io
from nmt.core.errors import ConfigError, UsageError
from nmt.core.processes import Executor
from nmt.data.clean import cleaning_pipeline
from nmt.documents import formats  # noqa: F401
from nmt.engines import native
from nmt.evaluate import line_metrics
from nmt.runs import checkpoint
from nmt.search import SEARCHES

PAGE = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text(encoding="utf-8")
MODULES = {
    source.partition("\n")[0].removeprefix("# "): source
    for source in re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
}
"""The source of each example by its file name, which is the comment in its first line."""
USED = [
    "cleaning",
    "corpus",
    "logger",
    "metric",
    "optimizer",
    "positions",
    "schedule",
    "score",
    "search",
]
"""The examples that the run of the fixture `workshop` uses."""
CONFIG = {
    "plugins": [f"my_{name}" for name in USED],
    "search": "shortest(beam_size=3)",
    "data": {
        "train": ["files(train='text')", "counting(size=300)"],
        "clean": ["normalize", "no_links"],
    },
    "tokenizer": {"vocab_size": 400},
    "model": {"position_encoding": "nearby(slope=0.2)", "attention_score": "cosine"},
    "train": {
        "schedule": "staircase(peak=0.1, every=10)",
        "optimizer": "sgd",
        "valid_search": "shortest",
        "best_metric": "length_match(power=2)",
        "loggers": ["lines"],
    },
}
ONE = """
from nmt import register

@register("{kind}", "{name}")
def component(*arguments, **options):
    raise ValueError("of the plug-in")
"""


@contextmanager
def new_process() -> Iterator[None]:
    """Emulate a process without plug-ins, and leave none."""
    assert not plugins._loaded
    tables = [(table.data, dict(table.data)) for table in plugins._tables.values()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)  # tests change modules within a second
        patch.setenv(plugins.VARIABLE, "")  # restored at the end, also if a plug-in changes it
        plugins._installed.cache_clear()
        yield
        for module in list(sys.modules):
            if module.startswith(("my_", "bad_", "good_", "broken_")):
                del sys.modules[module]
        for components, before in tables:
            for name in components.keys() - before.keys():
                del components[name]
        for entries in (*plugins._registrations.values(), plugins._loaded):
            entries.clear()
        for names in (plugins._offered, plugins._refused, plugins._broken):
            names.clear()
        plugins._installed.cache_clear()


@pytest.fixture(autouse=True)
def alone(finished: Path) -> Iterator[None]:
    with new_process():
        yield


@pytest.fixture(scope="module")
def finished(pristine: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the modules of the page and a run that uses them, trained once."""
    directory = copy(pristine, tmp_path_factory.mktemp("workshop"))
    for name, source in MODULES.items():
        (directory / name).write_text(source)
    (directory / "my.yaml").write_text(yaml.safe_dump(CONFIG))
    with pytest.MonkeyPatch.context() as patch, new_process():
        patch.syspath_prepend(directory)
        options = [f"{key}={value}" for key, value in TINY.items() if not _is_set(key)]
        words = [word for option in options for word in ("--set", option)]
        command(directory).run("train", "--config", "my.yaml", "--run", "runs/mine", *words)
    return directory


def _is_set(key: str) -> bool:
    section, _, name = key.partition(".")
    return name in CONFIG[section] or key == "train.source_noise"  # type: ignore[operator]


def command(directory: Path) -> CommandLine:
    return CommandLine(directory, {"XDG_CACHE_HOME": str(directory / "cache")})


@pytest.fixture
def workshop(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """A copy for one test, whose modules can be imported."""
    directory = copy(finished, tmp_path / "workshop")
    entries = json.loads((directory / "cache" / "nmt" / plugins.ALLOWED).read_text())
    moved = {name: path.replace(str(finished), str(directory)) for name, path in entries.items()}
    (directory / "cache" / "nmt" / plugins.ALLOWED).write_text(json.dumps(moved))
    monkeypatch.syspath_prepend(directory)
    return command(directory)


def again(nmt: CommandLine, *arguments: str) -> Done:
    """Run a command as in another process."""
    with new_process():
        return nmt(*arguments)


def test_the_page_has_an_example_of_each_kind() -> None:
    kinds: list[str] = []
    for source in MODULES.values():
        kinds += re.findall(r'@register\("(.*?)"', source)
    assert sorted(kinds) == sorted(plugins.KINDS)
    assert plugins._tables.keys() == set(plugins.KINDS)


def test_a_run_records_its_plugins(finished: Path) -> None:
    run = finished / "runs" / "mine"
    assert config_io.read_yaml(run / "config.yaml")["plugins"] == CONFIG["plugins"]
    session = json.loads((run / "sessions.jsonl").read_text())
    source = MODULES["my_cleaning.py"].encode()
    checksum = hashlib.sha256(source).hexdigest()
    assert session["plugins"][0] == {"name": "my_cleaning", "version": "", "sha256": checksum}
    assert f"plug-in my_cleaning (sha256 {checksum[:12]})" in (run / "README.md").read_text()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert lines[1]["lr"] == 0.1 * 0.5  # of the staircase
    assert lines[-1]["best_metric_value"] == lines[-1]["valid_length_match"]
    assert json.loads((run / "data.json").read_text())["pairs"]["train"] == 660
    logged = (finished / "values.txt").read_text().splitlines()
    assert "training/loss" in logged[0]


def test_plugins_of_a_run_are_imported_when_needed(workshop: CommandLine) -> None:
    files = {"greetings.properties": "# Greetings\nfirst=the old dog.\n", "a.en": "the old dog.\n"}
    for name, text in files.items():
        (workshop.directory / name).write_text(text)
    model = ("--model", "runs/mine")
    (line,) = again(workshop, "translate", *model, "the old dog.").check().out.splitlines()
    (shortest,) = again(
        workshop, "translate", *model, "--search", "shortest(beam_size=3)", "the old dog."
    ).out.splitlines()
    assert line == shortest
    workshop.environment[plugins.VARIABLE] = "my_format"
    again(
        workshop, "translate", *model, "greetings.properties", "--output", "out.properties"
    ).check()
    translated = (workshop.directory / "out.properties").read_text()
    assert translated == f"# Greetings\nfirst={line}\n"


@pytest.mark.slow
def test_metrics_of_plugins(workshop: CommandLine) -> None:
    for code in ("en", "de"):
        lines = (workshop.directory / f"text.{code}").read_text().splitlines(keepends=True)
        (workshop.directory / f"test.{code}").write_text("".join(lines[:30]))
    test = ("--src", "test.en", "--ref", "test.de")
    metric = ("--metric", "length_match(power=2)", "--metric", "chrf")
    done = again(workshop, "evaluate", "--model", "runs/mine", *test, *metric).check()
    ours, chrf = done.out.splitlines()
    assert re.match(
        r"length_match \d+\.\d ± \d\.\d  metric:length_match\(power=2\)\|mean:lines", ours
    )
    assert chrf.startswith("chrF2")
    lines = (workshop.directory / "test.de").read_text().splitlines()
    (workshop.directory / "a.hyp").write_text("".join(f"{line}\n" for line in lines))
    longer = "".join(f"{line} und\n" for line in lines)
    (workshop.directory / "b.hyp").write_text(longer)
    workshop.environment[plugins.VARIABLE] = "my_metric"
    done = again(
        workshop, "compare", "a.hyp", "b.hyp", *test, *metric[:2], "--resamples", "100", "--json"
    ).check()
    (result,) = json.loads(done.out)[0]["metrics"]
    assert (result["name"], result["first_score"], result["better"]) == ("length_match", 100, 0)
    assert result["bootstrap_p"] < 0.02
    done = again(workshop, "evaluate", "--model", "runs/mine", *test, "--metric", "bleu(a=1)")
    done.assert_fails(2, "metric 'bleu' has no options")
    done = again(workshop, "evaluate", "--model", "runs/mine", *test, "--metric", "lenght_match")
    done.assert_fails(2, "unknown metric 'lenght_match'", "did you mean 'length_match'?")


def test_significance_of_line_scores() -> None:
    rng = np.random.default_rng(1)
    first_N = rng.normal(50, 10, 200)
    better_N = first_N + rng.normal(3, 5, 200)
    half, _, bootstrap_p, randomization_p = line_metrics.paired_tests(first_N, better_N, 1000)
    assert half == pytest.approx(1.96 * first_N.std() / math.sqrt(200), rel=0.1)
    assert max(bootstrap_p, randomization_p) < 0.002
    # Without a difference, the p-values are uniform.
    p_values = []
    for _ in range(100):
        noise_N = first_N[:50] + rng.normal(0, 5, 50)
        p_values.append(line_metrics.paired_tests(first_N[:50], noise_N, 100)[2:])
    for test in zip(*p_values, strict=True):
        assert 0.02 <= sum(p < 0.1 for p in test) / 100 <= 0.2
    assert line_metrics.paired_tests(first_N, first_N, 100)[2:] == (1, 1)


@pytest.mark.parametrize("result", ["[1.0]", "[1, float('nan')]", "['a', 'b']"])
def test_wrong_results_of_a_metric(result: str, bare: CommandLine) -> None:
    package.register("metric", "wrong")(lambda *lines: eval(result))
    with pytest.raises(
        UsageError, match="metric 'wrong' must return a finite number for each of 2"
    ):
        line_metrics.score("wrong", ["a", "b"], ["a", "b"], [["a", "b"]])


@pytest.mark.slow
def test_resuming_with_changed_plugins(workshop: CommandLine) -> None:
    resume = ("train", "--run", "runs/mine", "--resume", "--set")
    done = again(workshop, *resume, "train.steps=25").check()
    assert "warning" not in done.err
    schedule = workshop.directory / "my_schedule.py"
    schedule.write_text(schedule.read_text().replace("0.5", "0.25"))
    done = again(workshop, *resume, "train.steps=30").check()
    assert "the plug-in my_schedule has changed since the last session of runs/mine" in done.err
    assert "warning" not in again(workshop, *resume, "train.steps=35").check().err
    cleaning = workshop.directory / "my_cleaning.py"
    cleaning.write_text(cleaning.read_text().replace("if marker", "if source and marker"))
    done = again(workshop, *resume, "train.steps=40")
    done.assert_fails(1, "a cleaning step of a plug-in has changed since runs/mine was trained")
    schedule.unlink()
    done = again(workshop, *resume, "train.steps=45")
    done.assert_fails(2, "runs/mine uses the plug-in my_schedule, which cannot be imported")
    assert "PYTHONPATH" in done.err


def test_models_of_others(workshop: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plug-in is imported for a model only if the user has named it, at the same place."""
    (workshop.directory / "cache" / "nmt" / plugins.ALLOWED).unlink()
    translate = ("translate", "--model", "runs/mine", "the old dog.")
    done = again(workshop, *translate)
    done.assert_fails(2, "runs/mine uses plug-ins that you have not used: my_")
    (hint,) = re.findall("NMT_PLUGINS=([a-z_,]+) nmt", done.err)
    assert set(hint.split(",")) == set(CONFIG["plugins"])
    workshop.environment[plugins.VARIABLE] = ",".join(CONFIG["plugins"])
    again(workshop, *translate).check()
    del workshop.environment[plugins.VARIABLE]
    assert again(workshop, *translate).code == 2  # the variable does not allow it for later
    again(workshop, "config", "my.yaml").check()
    again(workshop, *translate).check()
    # Another module of this name
    elsewhere = copy(workshop.directory, workshop.directory / "elsewhere")
    monkeypatch.syspath_prepend(elsewhere)
    assert "plug-ins that you have not used" in again(workshop, *translate).err


def test_the_directory_of_a_model_is_not_searched(
    workshop: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p != str(workshop.directory)])
    for module in workshop.directory.glob("my_*.py"):
        module.rename(workshop.directory / "runs" / "mine" / module.name)
    done = again(workshop, "translate", "--model", "runs/mine", "the old dog.")
    done.assert_fails(2, "runs/mine uses the plug-in my_", "which cannot be imported")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("antigravity", "antigravity is not a plug-in"),
        ("os.path", "os.path is not a plug-in"),
        ("nmt.cli", "nmt.cli is not a plug-in"),
        (".hidden", "the plug-in '.hidden' is not the name of a module"),
        ("../evil", "the plug-in '../evil' is not the name of a module"),
        ("my_score.py", "hint: write the name of the module, without .py: my_score"),
        ("no_such.py", "there is no module no_such.py to import as a plug-in"),
        ("__main__", "the plug-in '__main__' is not the name of a module"),
        ("no_such_module", "there is no module no_such_module to import as a plug-in"),
    ],
)
def test_names_that_are_no_plugins(
    name: str, message: str, workshop: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    again(workshop, "config", "--set", f"plugins=[{name}]").assert_fails(2, message)
    workshop.environment[plugins.VARIABLE] = name
    again(workshop, "config", "--set", "data.clean=missing").assert_fails(2, message)
    del workshop.environment[plugins.VARIABLE]
    # In the config of a model
    config = workshop.directory / "runs" / "tiny" / "config.yaml"
    content = config_io.read_yaml(config) | {"plugins": [name], "search": "missing"}
    config.write_text(yaml.safe_dump(content))
    done = again(workshop, "translate", "--model", "runs/tiny", "the old dog.")
    done.assert_fails(2, f"runs/tiny uses the plug-in {name}")
    assert name not in sys.modules or name in ("os.path", "nmt.cli", "__main__")


def test_a_model_with_an_unneeded_plugin(workshop: CommandLine) -> None:
    """A model whose training used a plug-in translates without it."""
    config = workshop.directory / "runs" / "tiny" / "config.yaml"
    content = config_io.read_yaml(config)
    content["plugins"] = ["antigravity"]
    content["train"]["schedule"] = "staircase"
    config.write_text(yaml.safe_dump(content))
    again(workshop, "translate", "--model", "runs/tiny", "the old dog.").check()
    assert "antigravity" not in sys.modules


def test_errors_in_plugins(workshop: CommandLine) -> None:
    sources = {
        "syntax": "def",
        "name": "undefined",
        "missing": "import no_such_module",
        "exits": "import sys; sys.exit(3)",
        "kind": ONE.format(kind="searches", name="mine"),
        "clash": ONE.format(kind="search", name="beam"),
        "suffix": ONE.format(kind="format", name="rst"),
        "identifier": ONE.format(kind="search", name="my search"),
        "constant": "from nmt import register\nregister('search', 'mine')(3)",
        "arguments": "from nmt import register\nregister('schedule', 'mine')(lambda step: 1)",
        "incomplete": ONE.format(kind="corpus", name="mine").replace(
            "def component(*arguments, **options):", "class Component:\n  name = 'mine'\n\ndef f():"
        ),
        "fails": ONE.format(kind="schedule", name="mine"),
    }
    messages = {
        "syntax": "cannot be imported: invalid syntax (bad_syntax.py, line 1)",
        "name": "cannot be imported: name 'undefined' is not defined",
        "missing": "cannot be imported: No module named 'no_such_module'",
        "exits": "the plug-in bad_exits cannot be imported: it calls sys.exit(3)",
        "kind": "plug-in bad_kind: unknown kind of component 'searches'",
        "clash": "plug-in bad_clash: the search 'beam' exists already",
        "suffix": "plug-in bad_suffix: 'rst' cannot be the name of a format",
        "identifier": "plug-in bad_identifier: 'my search' cannot be the name of a search",
        "constant": "plug-in bad_constant: the search 'mine' is neither a function nor a class",
        "arguments": "has other arguments than a schedule: step, total, dim",
        "incomplete": "the plug-in bad_incomplete is incomplete: 'Component' object has no",
        "fails": "the plug-in bad_fails failed in bad_fails.py, line 6: of the plug-in",
    }
    for name, source in sources.items():
        (workshop.directory / f"bad_{name}.py").write_text(source)
        changes = {"plugins": f"[bad_{name}]"}
        if name == "fails":
            changes["train.schedule"] = "mine"
        corpus = "mine" if name == "incomplete" else "files(train='text')"
        arguments = training("runs/bad", corpus, **changes)
        again(workshop, *arguments).assert_fails(2, messages[name])


WRONG = """
from nmt import register
from nmt.model.positions import PositionEncoding

register("corpus", "nothing")(lambda: None)
register("cleaning step", "nothing")(lambda pairs: None)
register("cleaning step", "halves")(lambda pairs: (source for source, target in pairs))
register("position encoding", "nothing")(lambda stack: None)
register("attention score", "nothing")(lambda heads, head_dim: None)
register("attention score", "queries")(lambda heads, head_dim: lambda q_BHQK, k_BHSK: q_BHQK)
register("optimizer", "nothing")(lambda model, config: None)
register("schedule", "late")(lambda step, total, dim: 1e-3 if step < 3 else None)
register("schedule", "text")(lambda step, total, dim: "1e-3")
register("search", "nothing")(lambda: None)
register("metric", "nothing")(lambda sources, hypotheses, references: None)
register("format", ".nothing")(lambda data, options: None)
register("logger", "nothing")(lambda: None)


@register("corpus", "lines")
class Lines:
    name = "lines"

    def validate(self):
        pass

    def open(self, split, src, tgt):
        return ["a line"]


@register("position encoding", "wide")
class Wide(PositionEncoding):
    def attention_bias(self, q_BHQK, k_BHSK, layer, start):
        return q_BHQK.new_zeros(7, 7)


@register("search", "texts")
class Texts:
    rows = n_best = 1

    def __call__(self, model, request):
        return ["a text"]
"""


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("data.train=nothing", "the corpus 'nothing' returned None, not a corpus"),
        ("data.train=lines", "open of the corpus 'lines' returned ['a line'], not a Split"),
        ("data.clean=nothing", "the cleaning step 'nothing' returned None, not pairs of texts"),
        ("data.clean=halves", "the cleaning step 'halves' returned 'the "),
        ("model.position_encoding=nothing", "the position encoding 'nothing' returned None"),
        ("model.attention_score=nothing", "the attention score 'nothing' returned None"),
        (
            "model.attention_score=queries",
            "the attention score 'queries' returned a Tensor of shape [1, 2, 3, 16], not a tensor"
            " of shape [1, 2, 3, 3]",
        ),
        (
            "model.position_encoding=wide",
            "attention_bias of the position encoding 'wide' returned a Tensor of shape [7, 7]",
        ),
        ("train.optimizer=nothing", "the optimizer 'nothing' returned None, not an optimizer"),
        ("train.schedule=late", "the schedule 'late' returned None, not a finite number"),
        ("train.schedule=text", "the schedule 'text' returned '1e-3', not a finite number"),
        ("train.valid_search=nothing", "the search 'nothing' returned None, not a search"),
        ("train.valid_search=texts", "the search Texts returned ['a text'], not an n-best list"),
        ("train.best_metric=nothing", "the metric 'nothing' returned None, not a number for each"),
        ("train.loggers=nothing", "the logger 'nothing' returned None, not a logger"),
    ],
)
def test_components_that_return_something_else(
    option: str, message: str, nmt: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (nmt.directory / "bad_results.py").write_text(WRONG)
    monkeypatch.syspath_prepend(nmt.directory)
    arguments = training("runs/bad", "files(train='text')", plugins="[bad_results]")
    again(nmt, *arguments, "--set", option).assert_fails(2, message, "repair the plug-in")


def test_a_format_that_returns_nothing(workshop: CommandLine) -> None:
    (workshop.directory / "bad_results.py").write_text(WRONG)
    (workshop.directory / "a.nothing").write_text("a line\n")
    workshop.environment[plugins.VARIABLE] = "bad_results"
    done = again(workshop, "translate", "--model", "runs/tiny", "a.nothing", "--output", "b")
    done.assert_fails(2, "the format '.nothing' returned None, not a document")


def test_a_name_is_of_one_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("first", "second"):
        (tmp_path / f"my_{name}.py").write_text(ONE.format(kind="search", name="mine"))
    monkeypatch.syspath_prepend(tmp_path)
    plugins.load(["my_first", "my_first"])
    with pytest.raises(ConfigError, match="plug-in my_second: the search 'mine' exists already"):
        plugins.load(["my_second"])
    # Before the module with the table is imported
    own = {name: SEARCHES.data[name] for name in ("greedy", "mine")}
    with pytest.raises(ConfigError, match="the search 'mine' exists already"):
        plugins.Components("search", own)


def test_installed_plugins(workshop: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    site = workshop.directory / "site"
    for name, version in (("good", "1.2"), ("broken", "3.4")):
        info = site / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(
            f"[nmtkit.plugins]\n{name} = {name}_package.plugins\n"
        )
        package = site / f"{name}_package"
        package.mkdir()
        (package / "__init__.py").write_text("")
    source = MODULES["my_search.py"].replace('"shortest"', '"installed"')
    (site / "good_package" / "plugins.py").write_text(source)
    (site / "broken_package" / "plugins.py").write_text("undefined")
    monkeypatch.syspath_prepend(site)
    translate = ("translate", "--model", "runs/tiny", "the old dog.", "--search")
    assert "plug-in" not in again(workshop, *translate, "beam").check().err  # nothing is imported
    done = again(workshop, *translate, "installed").check()
    warning = "warning: an installed plug-in is not used: the plug-in broken_package.plugins cannot"
    assert done.err.count(warning) == 1
    again(workshop, *translate, "instaled").assert_fails(2, "did you mean 'installed'?")
    with new_process():
        assert "installed" in list(SEARCHES)
        assert plugins.loaded()[0]["version"] == "1.2"


@pytest.mark.slow
def test_worker_processes_import_plugins(workshop: CommandLine) -> None:
    plugins.load(["my_cleaning"])
    with Executor() as executor:
        pipeline = executor.submit(cleaning_pipeline, (), ["no_links"]).result()
    assert [spec for spec, _ in pipeline._steps] == ["blank", "no_links"]


def test_the_native_engine_and_exports_refuse_plugins(workshop: CommandLine) -> None:
    config = config_io.load(workshop.directory / "runs" / "mine" / "config.yaml").model
    assert not native.supports(replace(config, attention_score="dot"))
    assert not native.supports(replace(config, position_encoding="none"))
    for target in ("ctranslate2", "transformers"):
        done = again(workshop, "export", "runs/mine", "--to", target)
        done.assert_fails(2, "does not support model.position_encoding=nearby(slope=0.2)")


@pytest.mark.slow
def test_training_from_python(workshop: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workshop.directory)
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    options = [f"{key}={value}" for key, value in TINY.items()]
    config = config_io.load(None, [*options, "data.train=files(train='text')"])
    (workshop.directory / "my.yaml").write_text(config_io.dump(config))
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(MODULES["my_training.py"], "my_training.py", "exec"), names)
    result = names["result"]
    assert len(names["losses"]) == 20
    assert result.checkpoint == checkpoint.best(Path("runs/python"))
    assert result.scores.keys() == {"valid_loss", "valid_bleu", "valid_chrf"}


def test_the_logged_loss_is_that_of_all_updates_since_the_last_log(tmp_path: Path) -> None:
    losses: list[float] = []
    tokens: list[float] = []

    def on_update(step: int, stats: dict[str, float]) -> None:
        losses.append(stats["loss"])
        tokens.append(stats["tokens"])

    experiment = config(tmp_path, "train.steps=8", "train.valid_every=3", "train.log_every=4")
    package.train(experiment, tmp_path / "a", on_update=on_update)
    records = map(json.loads, (tmp_path / "a/metrics.jsonl").read_text().splitlines())
    logged = [record["loss"] for record in records if "loss" in record]
    for start, mean in zip((0, 4), logged, strict=True):
        period = slice(start, start + 4)
        assert mean == pytest.approx(np.average(losses[period], weights=tokens[period]))


def test_callbacks_end_training(tmp_path: Path) -> None:
    steps: list[int] = []
    validations: list[int] = []

    def on_update(step: int, stats: dict[str, float]) -> bool:
        assert stats.keys() == {"loss", "grad_norm", "tokens", "lr"}
        steps.append(step)
        return step < 3

    def on_validation(step: int, scores: dict[str, float]) -> bool:
        validations.append(step)
        return step < 6

    experiment = config(tmp_path, "train.valid_every=3")
    result = package.train(experiment, tmp_path / "a", on_update=on_update)
    assert steps == [1, 2, 3]
    assert result.checkpoint.name == "step-000003"
    experiment = replace(experiment, train=replace(experiment.train, calibration_pairs=0))
    result = package.train(experiment, tmp_path / "b", on_validation=on_validation)
    assert validations == [3, 6]
    assert checkpoint.read_progress(result.checkpoint).step <= 6
    with pytest.raises(UsageError, match="overrides and init_from are for the name of a config"):
        package.train(experiment, tmp_path / "c", overrides=["seed=2"])
    with pytest.raises(package.NMTError, match="overrides must be a list") as caught:
        package.train("quickstart", tmp_path / "c", overrides="seed=2")
    assert caught.value.hint == "write overrides=['seed=2']"
