"""Everything a user may set, assembled from the config dataclass that each room owns.

Settings come from `rag_pipeline.toml` in the working directory (or the file given by ``--config`` or
``RAG_PIPELINE_CONFIG``) and from environment variables ``RAG_PIPELINE_<SECTION>__<KEY>``, which win. Relative
paths count from the settings file's folder (from the working directory for environment variables); a path may
start with ``{sample}``, the folder of the corpus that ships with the package.

This is the only module that reads the environment.
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from annotated_types import Ge
from pydantic import ConfigDict, TypeAdapter, ValidationError
from typing_extensions import Doc

from rag_pipeline.chunking.config import ChunkingConfig
from rag_pipeline.core.config import StorageConfig
from rag_pipeline.core.errors import SettingsError
from rag_pipeline.documents.config import ExtractionConfig, SourceConfig
from rag_pipeline.embedding.config import EmbeddingConfig
from rag_pipeline.evaluation.config import EvaluationConfig, GateConfig
from rag_pipeline.index.config import PublicationConfig
from rag_pipeline.lexical.config import BM25Config
from rag_pipeline.retrieval.config import RetrievalConfig

CONFIG_NAME = "rag_pipeline.toml"
ENVIRONMENT_PREFIX = "RAG_PIPELINE_"
CONFIG_VARIABLE = "RAG_PIPELINE_CONFIG"
SAMPLE_FOLDER = Path(__file__).resolve().parent / "sample"

# Keys that hold a path, resolved when settings load. (embedding.model and retrieval.reranker are names as well as
# paths: they are resolved only where such a folder exists.)
_PATHS = {
    ("source", "path"),
    ("storage", "root"),
    ("evaluation", "questions"),
    ("evaluation", "out_of_domain"),
}
_NAMES_OR_PATHS = {("embedding", "model"), ("retrieval", "reranker")}


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """Section `schedule`: when the index is made again without being asked."""

    cron: Annotated[str, Doc("Cron expression of the scheduled full re-index; empty: no schedule.")] = ""
    timezone: Annotated[str, Doc("Time zone the cron expression is read in.")] = "UTC"
    watch: Annotated[bool, Doc("Start the sensor that re-indexes when the source folder changes.")] = False
    watch_interval: Annotated[
        int, Ge(5), Doc("Least seconds between two looks of the sensor at the source folder.")
    ] = 30


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings, by section. Make them with `Settings.load`; two equal settings give equal pipelines."""

    source: SourceConfig = field(default_factory=SourceConfig)
    extraction: ExtractionConfig = field(default_factory=ExtractionConfig)
    chunking: ChunkingConfig = field(default_factory=ChunkingConfig)
    embedding: EmbeddingConfig = field(default_factory=EmbeddingConfig)
    bm25: BM25Config = field(default_factory=BM25Config)
    retrieval: RetrievalConfig = field(default_factory=RetrievalConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    gate: GateConfig = field(default_factory=GateConfig)
    publication: PublicationConfig = field(default_factory=PublicationConfig)
    storage: StorageConfig = field(default_factory=StorageConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)

    @classmethod
    def load(cls, config: str | Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
        """Return the settings of a file and the environment.

        `config` names the file; without it, `RAG_PIPELINE_CONFIG` and then `rag_pipeline.toml` in the working
        directory are looked for, and defaults are taken where there is neither. Raises `SettingsError` naming
        every key that is unknown or wrong, its value, and what is allowed.
        """
        environ = os.environ if environ is None else environ
        named = config if config is not None else (environ.get(CONFIG_VARIABLE) or None)
        path = Path(named) if named is not None else Path(CONFIG_NAME)
        values: dict[str, dict[str, Any]] = {}
        if path.is_file():
            values = _read_toml(path)
        elif named is not None:
            raise SettingsError(f"settings file {path} does not exist")
        base = path.absolute().parent
        origin: dict[tuple[str, str], str] = {}
        for section, keys in values.items():
            for key in keys:
                origin[section, key] = f"in {path}"
        from_environment = _read_environment(environ)
        for (section, key), value in from_environment.items():
            values.setdefault(section, {})[key] = value
            origin[section, key] = f"in the environment ({_variable(section, key)})"
        for section, keys in values.items():
            for key, value in keys.items():
                folder = Path.cwd() if (section, key) in from_environment else base
                keys[key] = _resolve(section, key, value, folder)
        for section, key in _PATHS:  # defaults are relative paths too
            default = getattr(_defaults(section), key)
            if default and key not in values.get(section, {}):
                values.setdefault(section, {})[key] = _resolve(section, key, default, base)
        return cls.from_values(values, origin)

    @classmethod
    def from_values(
        cls, values: Mapping[str, Any], origin: Mapping[tuple[str, str], str] | None = None
    ) -> Settings:
        """Return validated settings from plain values by section and key; paths are taken as they are."""
        origin = origin or {}
        problems: list[str] = []
        sections: dict[str, Any] = {}
        known = {f.name: f for f in dataclasses.fields(cls)}
        for section in values:
            if section not in known:
                where = next((w for (s, _), w in origin.items() if s == section), "")
                problems.append(
                    f"unknown section [{section}]{_in_brackets(where)}: allowed are {_listed(known)}"
                )
        for name in known:
            given = values.get(name, {})
            if not isinstance(given, Mapping):
                problems.append(f"{name} = {given!r}: must be a section, written [{name}]")
                continue
            checked: dict[str, Any] = {}
            hints = get_type_hints(section_type(name), include_extras=True)
            for key, value in given.items():
                where = _in_brackets(origin.get((name, key), ""))
                if key not in hints:
                    problems.append(f"unknown setting {name}.{key}{where}: [{name}] has {_listed(hints)}")
                    continue
                try:
                    checked[key] = _check(hints[key], value)
                except ValidationError:
                    allowed = _type_words(hints[key])
                    problems.append(f"{name}.{key} = {_shown(value)}{where}: allowed is {allowed}")
            sections[name] = section_type(name)(**checked)
        if problems:
            raise SettingsError("; ".join(problems))
        settings = cls(**sections)
        settings._check_together()
        return settings

    def _check_together(self) -> None:
        if self.retrieval.mode == "reranked" and not self.retrieval.reranker:
            raise SettingsError(
                "retrieval.mode = 'reranked' needs retrieval.reranker: name a cross-encoder or its folder"
            )

    @property
    def storage_root(self) -> Path:
        """The storage root as a path."""
        return Path(self.storage.root)

    def dagster_home(self, environ: Mapping[str, str] | None = None) -> Path:
        """Return Dagster's home: `DAGSTER_HOME` where it is set, else beside the storage root."""
        environ = os.environ if environ is None else environ
        if environ.get("DAGSTER_HOME"):
            return Path(environ["DAGSTER_HOME"])
        return self.storage_root.absolute().parent / "dagster_home"

    def replace(self, **sections: Mapping[str, Any]) -> Settings:
        """Return the settings with some keys of some sections changed (and validated)."""
        values = {f.name: dataclasses.asdict(getattr(self, f.name)) for f in dataclasses.fields(self)}
        for section, keys in sections.items():
            values[section] = {**values.get(section, {}), **keys}
        return Settings.from_values(values)


@dataclass(frozen=True)
class SettingDescription:
    """One setting, for documentation: key, type in words, default and what it does."""

    section: str
    key: str
    type: str
    default: Any
    description: str


def describe_settings() -> list[SettingDescription]:
    """Return every setting there is, in the order of the sections, for the settings reference."""
    result = []
    for section in dataclasses.fields(Settings):
        type_ = section_type(section.name)
        hints = get_type_hints(type_, include_extras=True)
        for key in dataclasses.fields(type_):
            annotated = hints[key.name]
            docs = [m.documentation for m in getattr(annotated, "__metadata__", ()) if isinstance(m, Doc)]
            result.append(
                SettingDescription(
                    section.name, key.name, _type_words(annotated), key.default, " ".join(docs)
                )
            )
    return result


def section_type(name: str) -> type:
    """Return the config dataclass of a section."""
    type_ = get_type_hints(Settings)[name]
    assert isinstance(type_, type)
    return type_


def _defaults(section: str) -> Any:
    return section_type(section)()


def _check(hint: Any, value: Any) -> Any:
    """Return the value if it is of the declared type and range; no text passes for a number, no true for a 1."""
    if isinstance(value, list):
        value = tuple(value)
    adapter = TypeAdapter(hint, config=ConfigDict(strict=True, allow_inf_nan=False))
    return adapter.validate_python(value)


def _shown(value: Any) -> str:
    if isinstance(value, bool):  # as TOML writes it
        return str(value).lower()
    return repr(list(value) if isinstance(value, tuple) else value)


def _in_brackets(where: str) -> str:
    return f" ({where})" if where else ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _type_words(annotated: Any) -> str:
    base, *metadata = get_args(annotated) if hasattr(annotated, "__metadata__") else (annotated,)
    optional = type(None) in get_args(base)
    if get_origin(base) is tuple:
        words = "list of " + _type_words(get_args(base)[0])
    elif optional:
        words = " or ".join(_type_words(a) for a in get_args(base) if a is not type(None))
    elif get_args(base):
        words = " | ".join(str(a) for a in get_args(base))
    else:
        words = {str: "text", int: "whole number", float: "number", bool: "true | false"}.get(base, str(base))
    limits = [
        f"{sign} {limit}"
        for sign, name in ((">=", "ge"), (">", "gt"), ("<=", "le"), ("<", "lt"))
        for m in metadata
        if (limit := getattr(m, name, None)) is not None
    ]
    if limits:
        words += " " + " and ".join(limits)
    if any(getattr(m, "min_length", None) for m in metadata):
        words += ", not empty"
    return f"{words}, or unset" if optional else words


def _read_toml(path: Path) -> dict[str, dict[str, Any]]:
    try:
        with path.open("rb") as file:
            values = tomllib.load(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: not valid TOML: {error}") from error
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from error
    for key, value in values.items():
        if not isinstance(value, dict):
            raise SettingsError(
                f"{path}: {key} = {value!r} stands outside a section; write it under [section]"
            )
    return values


def _variable(section: str, key: str) -> str:
    return f"{ENVIRONMENT_PREFIX}{section.upper()}__{key.upper()}"


def _read_environment(environ: Mapping[str, str]) -> dict[tuple[str, str], Any]:
    """Return the settings of the environment; a variable that names no section is an error, not ignored."""
    found: dict[tuple[str, str], Any] = {}
    for name, raw in environ.items():
        if not name.startswith(ENVIRONMENT_PREFIX) or name == CONFIG_VARIABLE:
            continue
        section, separator, key = name[len(ENVIRONMENT_PREFIX) :].lower().partition("__")
        if not separator:
            raise SettingsError(
                f"environment variable {name}: not a setting; they are named {ENVIRONMENT_PREFIX}<SECTION>__<KEY>"
            )
        found[section, key] = _parse(section, key, raw)
    return found


def _parse(section: str, key: str, raw: str) -> Any:
    """Read an environment value as TOML where the setting is not text, so that lists and numbers work."""
    try:
        hint = get_type_hints(section_type(section)).get(key)
    except KeyError:
        return raw
    if hint is str or get_origin(hint) is Literal:
        return raw
    if hint is bool:
        raw = raw.strip().lower()
    try:
        return tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        return raw


def _resolve(section: str, key: str, value: Any, base: Path) -> Any:
    if not isinstance(value, str) or not value:
        return value
    if (section, key) in _PATHS or value.startswith("{sample}"):
        if value.startswith("{sample}"):
            return str(SAMPLE_FOLDER) + value.removeprefix("{sample}")
        return str((base / Path(value).expanduser()).absolute())
    if (section, key) in _NAMES_OR_PATHS and (base / Path(value).expanduser()).is_dir():
        return str((base / Path(value).expanduser()).absolute())
    return value
