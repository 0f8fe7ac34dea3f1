"""Plug-ins: modules of users that add components, such as a search, to the tables of nmt.

Three kinds are imported: modules that the user names, in a config or in `$NMT_PLUGINS`; installed
ones, which are entry points of the group `nmtkit.plugins`; and modules that the config of a model
names. The config may be a stranger's, so they are imported only if the user has named them before.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import inspect
import json
import os
import re
import reprlib
import sys
import threading
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from nmt.core.console import log
from nmt.core.errors import ConfigError, NMTError, PluginError, first_line, suggest
from nmt.core.paths import cache_dir, write_text

T = TypeVar("T")
KINDS: dict[str, tuple[str, ...]] = {
    "corpus": (),
    "cleaning step": ("pairs",),
    "position encoding": ("stack",),
    "attention score": ("heads", "head_dim"),
    "optimizer": ("model", "config"),
    "schedule": ("step", "total", "dim"),
    "search": (),
    "metric": ("sources", "hypotheses", "references"),
    "format": ("data", "options"),
    "logger": (),
}
"""The positional arguments of the components of each kind."""
ENTRY_POINTS = "nmtkit.plugins"
VARIABLE = "NMT_PLUGINS"
ALLOWED = "plugins.json"
"""File in the cache directory with the modules that the user has named, and where they are."""
MODULE = re.compile(r"[A-Za-z]\w*(\.[A-Za-z]\w*)*", re.ASCII)
SUFFIX = re.compile(r"\.[a-z0-9]+")


class Lazy(NamedTuple):
    """A component that is imported when it is used, because importing all takes longer than a short
    translation."""

    module: str
    name: str

    def load(self) -> Any:
        """Import the component."""
        return getattr(importlib.import_module(self.module), self.name)


class Components(UserDict[str, T]):
    """The components of a kind by name: those of nmt, and those of plug-ins.

    The installed plug-ins, and those that a model names, are imported when a name is missing or
    the names are listed.

    Args:
        kind: what they are; see `KINDS`.
        components: those of nmt.
        returns: what a component returns, or each item of the iterator that it returns.
        is_valid: whether it has returned that. Default: something else than None.
    """

    def __init__(
        self,
        kind: str,
        components: Mapping[str, T | Lazy],
        returns: str = "",
        is_valid: Callable[[Any], bool] = lambda result: result is not None,
    ) -> None:
        super().__init__(cast(Mapping[str, T], components))
        self.kind = kind
        self.returns = returns or f"a {kind}"
        self.is_valid = is_valid
        for name, registration in _registrations[kind].items():
            _check_new(kind, name, self.data)
            self.data[name] = registration.component
        _tables[kind] = self

    def __getitem__(self, name: str) -> T:
        component = super().__getitem__(name)
        if isinstance(component, Lazy):
            component = self.data[name] = component.load()
        return component

    def __contains__(self, name: object) -> bool:
        if name not in self.data and _is_valid_name(self.kind, str(name)):
            _load_pending()
        return name in self.data

    def __missing__(self, name: str) -> T:
        _load_pending()
        return self.data[name]

    def __iter__(self) -> Iterator[str]:
        _load_pending()
        return iter(self.data)

    def is_of_plugin(self, name: str) -> bool:
        """Return whether a component is one of a plug-in."""
        return name in _registrations[self.kind]

    def checked(self, name: str, component: Callable[..., Any]) -> Callable[..., Any]:
        """Return a component, whose options may be bound, that checks what it returns, if it is one
        of a plug-in."""
        if not self.is_of_plugin(name):
            return component
        return functools.partial(_call, self.kind, name, component)  # can be pickled

    def check(self, name: str, result: Any) -> Any:
        """Return the result of a component if it is valid.

        Raises:
            PluginError: it is not.
        """
        if not self.is_valid(result):
            raise wrong_result(f"the {self.kind} '{name}'", result, self.returns)
        return result


def _call(
    kind: str, name: str, component: Callable[..., Any], *arguments: Any, **options: Any
) -> Any:
    """Call a component of a plug-in, and check what it returns."""
    result = component(*arguments, **options)
    check = functools.partial(_tables[kind].check, name)
    return map(check, result) if isinstance(result, Iterator) else check(result)


class _Registration(NamedTuple):
    """A component of a plug-in, and the module that has registered it."""

    component: Any
    module: str
    file: str


class Plugin(NamedTuple):
    """What a run records about a plug-in."""

    name: str
    version: str
    sha256: str
    """Hash of its source files."""


_tables: dict[str, Components[Any]] = {}
_registrations: dict[str, dict[str, _Registration]] = {kind: {} for kind in KINDS}
_loaded: dict[str, Plugin] = {}
"""Imported plug-ins by the name of the module."""
_offered: dict[str, str] = {}
"""Modules that models name, and the model; they have not been needed."""
_refused: dict[str, str] = {}
"""Modules that models name and that are not imported, and the model."""
_broken: set[str] = set()
"""Installed modules that cannot be imported."""
_lock = threading.RLock()


def register(kind: str, name: str) -> Callable[[T], T]:
    """Return a decorator that adds a function or class to the components of a kind.

    Args:
        kind: what it is, for example "search"; see `KINDS`.
        name: its name in configs and options; of a format, the suffix of its files.

    Raises:
        ConfigError: the kind is unknown, or the name is invalid or exists.
    """
    if kind not in KINDS:
        raise ConfigError(f"unknown kind of component '{kind}'", suggest(kind, KINDS))
    if not _is_valid_name(kind, name):
        hint = "use letters, digits and underscores"
        if kind == "format":
            hint = "write the suffix of its files, in lower case: .rst"
        raise ConfigError(f"'{name}' cannot be the name of a {kind}", hint)
    frame = inspect.currentframe()
    assert frame
    assert frame.f_back
    caller = frame.f_back.f_globals
    module = str(caller.get("__name__"))
    file = str(caller.get("__file__") or "")

    def add(component: T) -> T:
        _check_arguments(kind, name, component)
        table = _tables.get(kind)
        earlier = _registrations[kind].get(name)
        # A script is a module of another name in its worker processes, and a notebook repeats.
        if earlier is None or earlier.file != file:
            _check_new(kind, name, table.data if table else {})
            _check_new(kind, name, _registrations[kind])
        _registrations[kind][name] = _Registration(component, module, file)
        if table:
            table.data[name] = component
        return component

    return add


def _check_arguments(kind: str, name: str, component: Any) -> None:
    if not callable(component):
        raise ConfigError(f"the {kind} '{name}' is neither a function nor a class")
    arguments = KINDS[kind]
    signature = inspect.signature(component)
    required = {
        option.name: None
        for option in signature.parameters.values()
        if option.kind is option.KEYWORD_ONLY
    }
    try:
        signature.bind(*arguments, **required)
    except TypeError:
        listed = ", ".join(arguments) or "none"
        raise ConfigError(
            f"the {kind} '{name}' has other arguments than a {kind}: {listed}",
            "options are keyword-only: write them after *",
        ) from None


def _is_valid_name(kind: str, name: str) -> bool:
    return bool(SUFFIX.fullmatch(name)) if kind == "format" else name.isidentifier()


def _check_new(kind: str, name: str, components: Mapping[str, Any]) -> None:
    if name in components:
        raise ConfigError(f"the {kind} '{name}' exists already", "choose another name")


def load(modules: Iterable[str]) -> None:
    """Import the plug-ins that the user names, and allow them for models that name them, too.

    Raises:
        ConfigError: a module cannot be imported.
    """
    for module in modules:
        _check_module(module)
        _import(module)
        _remember(module)


def offer(modules: Iterable[str], model: Path) -> None:
    """Let the plug-ins that a model names be imported when a component is missing."""
    for module in modules:
        if module not in _loaded:
            _offered[module] = str(model)


def load_for(model: Path, modules: Iterable[str]) -> None:
    """Import the plug-ins of a run to resume.

    Raises:
        ConfigError: one cannot be imported, or the user has never named it.
    """
    offer(modules, model)
    _load_pending()
    refused = [module for module in modules if module in _refused]
    if refused:
        raise ConfigError(*_explain_refusal(refused))


def unknown_component(message: str, name: str, components: Iterable[str]) -> ConfigError:
    """Return the error for the name of a component that does not exist, which may be one of a
    plug-in."""
    hint = suggest(name, components)
    if _refused:
        problem, hint = _explain_refusal(list(_refused))
        message = f"{message}: {problem}"
    return ConfigError(message, hint)


def wrong_result(component: str, result: object, expected: str) -> PluginError:
    """Return the error for a component of a plug-in that returns something else than expected."""
    text = reprlib.repr(result)
    shape = getattr(result, "shape", None)
    if shape is not None:
        text = f"a {type(result).__name__} of shape {list(shape)}"
    return _not_expected(component, text, expected)


def wrong_type(component: str, result: object, expected: str) -> PluginError:
    """Return the error for a component of a plug-in that returns something else than expected,
    without the value, which may have text of a user."""
    text = "None" if result is None else f"an object of type {type(result).__name__}"
    return _not_expected(component, text, expected)


def _not_expected(component: str, text: str, expected: str) -> PluginError:
    return PluginError(f"{component} returned {text}, not {expected}", "repair the plug-in")


def loaded() -> list[dict[str, str]]:
    """Return the records of the plug-ins that have been imported."""
    return [plugin._asdict() for _, plugin in sorted(_loaded.items())]


def source_checksums(kind: str, names: Iterable[str]) -> dict[str, str]:
    """Return the hashes of the sources of the components that are those of plug-ins."""
    checksums = {}
    for name in names:
        registration = _registrations[kind].get(name)
        if registration:
            plugin = _loaded.get(_plugin_of(registration.module))
            checksums[name] = plugin.sha256 if plugin else _hash_files([Path(registration.file)])
    return checksums


def explain_failure(error: Exception) -> ConfigError | None:
    """Return the error for an exception that passed through the code of a plug-in; None: it did
    not."""
    failed: ConfigError | None = None
    if isinstance(error, AttributeError):  # of an object that lacks a part of its interface
        plugin = _plugin_of(type(error.obj).__module__)
        if plugin:
            failed = ConfigError(f"the plug-in {plugin} is incomplete: {first_line(error)}")
    trace = error.__traceback__
    while trace:
        module = str(trace.tb_frame.f_globals.get("__name__"))
        plugin = _plugin_of(module)
        if plugin:
            file = Path(trace.tb_frame.f_code.co_filename).name
            where = f"{file}, line {trace.tb_lineno}"
            failed = ConfigError(f"the plug-in {plugin} failed in {where}: {first_line(error)}")
        trace = trace.tb_next
    return failed


def _plugin_of(module: str) -> str:
    """Return the plug-in that a module is, or is part of; empty: none."""
    while module not in _loaded and "." in module:
        module = module.rpartition(".")[0]
    return module if module in _loaded else ""


def _load_pending() -> None:
    """Import the installed plug-ins, those of `$NMT_PLUGINS`, and those that models name."""
    with _lock:
        for module in _modules_in_variable():
            _import(module)
        for module in _installed().keys() - _broken:
            try:
                _import(module)
            except ConfigError as error:
                _broken.add(module)
                log(f"warning: an installed plug-in is not used: {error.message}")
        while _offered:
            module, model = _offered.popitem()
            if _is_allowed(module):
                _import(module)
            else:
                _refused[module] = model


@functools.cache
def _installed() -> dict[str, str]:
    """Return the modules of the installed plug-ins, and the versions of their distributions."""
    from importlib.metadata import entry_points  # takes as long as parsing a command line

    versions = {}
    for point in entry_points(group=ENTRY_POINTS):
        versions[point.module] = point.dist.version if point.dist else ""
    return versions


def _modules_in_variable() -> list[str]:
    names = [name.strip() for name in os.environ.get(VARIABLE, "").split(",")]
    modules = list(filter(None, names))
    for module in modules:
        _check_module(module)
    return modules


def _check_module(module: str) -> None:
    """Check that a name can be that of a plug-in. Some modules of the standard library do something
    when they are imported, such as opening a browser."""
    if not MODULE.fullmatch(module):
        raise ConfigError(
            f"the plug-in '{module}' is not the name of a module", "write my_module, not a file"
        )
    if module.partition(".")[0] in {*sys.stdlib_module_names, "nmt"}:
        raise ConfigError(f"{module} is not a plug-in", "name a module of yours")


def _import(module: str) -> None:
    with _lock:
        if module in _loaded:
            return
        try:
            imported = importlib.import_module(module)
        except NMTError as error:
            raise ConfigError(f"plug-in {module}: {error.message}", error.hint) from None
        except ModuleNotFoundError as error:
            if f"{module}.".startswith(f"{error.name}."):  # or a package that it is in
                raise ConfigError(*_explain_missing(module)) from None
            raise _import_error(module, error) from None
        except (Exception, SystemExit) as error:
            raise _import_error(module, error) from None
        version = getattr(imported, "__version__", "") or _installed().get(module, "")
        _refused.pop(module, None)
        _loaded[module] = Plugin(module, str(version), _hash_files(_source_files(imported)))
        # Worker processes import it, too, when they need it.
        modules = [*_modules_in_variable(), module]
        os.environ[VARIABLE] = ",".join(dict.fromkeys(modules))


def _import_error(module: str, error: BaseException) -> ConfigError:
    hint = f'to see where: python -c "import {module}"'
    reason = first_line(error)
    if isinstance(error, SystemExit):
        reason = f"it calls sys.exit({error.code!r})"
    return ConfigError(f"the plug-in {module} cannot be imported: {reason}", hint)


def _explain_missing(module: str) -> tuple[str, str]:
    """Return the message and the hint for a module that is not there."""
    hint = f"install it, or add its directory to PYTHONPATH: PYTHONPATH=. if {module}.py is here"
    if module.endswith(".py"):
        hint = f"write the name of the module, without .py: {module.removesuffix('.py')}"
    return f"there is no module {module} to import as a plug-in", hint


def _explain_refusal(modules: list[str]) -> tuple[str, str]:
    """Return the message and the hint for plug-ins of a model that are not imported."""
    model = _refused[modules[0]]
    for module in modules:
        problem = f"{model} uses the plug-in {module}, which"
        try:
            _check_module(module)
        except ConfigError as error:
            return f"{problem} is not imported: {error.message}", "ask the author of the model"
    missing = [module for module in modules if not _location(module)]
    if missing:
        names = ", ".join(missing)
        files = " and ".join(f"{module}.py" for module in missing)
        hint = f"install them, or add their directory: PYTHONPATH=. if {files} are here"
        if len(missing) == 1:
            hint = _explain_missing(names)[1]
        return f"{model} uses the plug-in {names}, which cannot be imported", hint
    allowed = ",".join(dict.fromkeys((*_modules_in_variable(), *modules)))
    problem = f"{model} uses plug-ins that you have not used: {', '.join(modules)}"
    return problem, f"if you trust these modules: {VARIABLE}={allowed} nmt ..."


def _is_allowed(module: str) -> bool:
    """Return whether a module that a model names may be imported."""
    if module in _modules_in_variable() or module in _installed():
        return True
    location = _location(module) if MODULE.fullmatch(module) else ""
    return bool(location) and _remembered().get(module) == location


def _location(module: str) -> str:
    """Return where the module, or the package that it is in, would be imported from, without doing
    so; empty: nowhere."""
    spec = None
    with suppress(ImportError, ValueError, AttributeError):
        spec = importlib.util.find_spec(module.partition(".")[0])
    if spec is None or ("." in module and spec.submodule_search_locations is None):
        return ""
    path = spec.origin or next(iter(spec.submodule_search_locations or ()), "")
    return str(Path(path).resolve()) if path else ""


def _remembered() -> dict[str, str]:
    with suppress(OSError, ValueError):
        entries = json.loads((cache_dir() / ALLOWED).read_text(encoding="utf-8"))
        if isinstance(entries, dict):
            return entries
    return {}


def _remember(module: str) -> None:
    entries = _remembered()
    location = _location(module)
    if entries.get(module) == location:
        return
    with suppress(OSError, NMTError):  # a read-only cache
        cache_dir().mkdir(parents=True, exist_ok=True)
        write_text(cache_dir() / ALLOWED, json.dumps(entries | {module: location}, indent=2))


def _source_files(module: Any) -> list[Path]:
    directories = list(getattr(module, "__path__", ()))
    if not directories:
        return [Path(module.__file__)] if getattr(module, "__file__", None) else []
    files: list[Path] = []
    for directory in directories:
        files += sorted(Path(directory).rglob("*.py"))
    return files


def _hash_files(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        with suppress(OSError):  # of a notebook, or compiled
            digest.update(file.read_bytes())
    return digest.hexdigest()
