"""Base of every object that crosses a stage: frozen, versioned, written atomically as JSON, read strictly."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Annotated, ClassVar, TypeVar

import pydantic

from etcli.common.errors import EtcliError, UsageError
from etcli.common.files import check_relative, write_atomically

M = TypeVar("M", bound="Manifest")


class Part(pydantic.BaseModel):
    """A piece of a manifest: immutable, no unknown keys."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class Manifest(Part):
    """A whole document. Subclasses set `VERSION` and raise it with each incompatible change."""

    VERSION: ClassVar[int] = 1

    schema_version: int = 1

    @pydantic.field_validator("schema_version")
    @classmethod
    def _known_version(cls, version: int) -> int:
        if version != cls.VERSION:
            raise ValueError(f"this etcli reads version {cls.VERSION}, the document is version {version}")
        return version

    def to_text(self) -> str:
        """The document as indented JSON with a final newline; equal content gives equal text."""
        return self.model_dump_json(indent=2, by_alias=True) + "\n"

    def write(self, path: Path) -> None:
        """Replace `path` by this document in one step."""
        write_atomically(path, self.to_text())

    @classmethod
    def parse(cls: type[M], text: str | bytes, *, file: Path | None = None, error: type[EtcliError] = UsageError) -> M:
        """The document in `text`.

        Raises:
            EtcliError: of the class `error`, code `manifest.invalid`, naming the first fields that are wrong.
        """
        try:
            return cls.model_validate_json(text)
        except pydantic.ValidationError as problem:
            details = "; ".join(
                f"{'.'.join(map(str, item['loc'])) or 'document'}: {item['msg']}" for item in problem.errors()[:3]
            )
            raise error(
                f"not a valid {cls.__name__}: {details}",
                code="manifest.invalid",
                hint="It was written by another version of etcli, or changed by hand. Run the stage that writes it again.",
                file=file,
            ) from None

    @classmethod
    def read(cls: type[M], path: Path, *, error: type[EtcliError] = UsageError) -> M:
        """The document in the file `path`.

        Raises:
            FileNotFoundError: there is no such file.
            EtcliError: of the class `error`, where it is not a valid document, or `manifest.unreadable`, where it is no file that can be read.
        """
        return cls.parse(_content(path, error), file=path, error=error)


def _content(path: Path, error: type[EtcliError]) -> bytes:
    try:
        if path.exists() and not path.is_file():
            raise OSError(errno.EINVAL, "it is not a regular file")
        return path.read_bytes()
    except FileNotFoundError:
        raise
    except NotADirectoryError as problem:  # a file stands where the folder should
        raise FileNotFoundError(problem.errno, problem.strerror, str(path)) from None
    except OSError as problem:
        raise error(
            f"{path.name} cannot be read: {problem.strerror}",
            code="manifest.unreadable",
            hint="Check its permissions, or remove it and run the stage that writes it again.",
            file=path,
        ) from None


def _contained(value: str) -> str:
    check_relative(value)
    return value


RelativePath = Annotated[str, pydantic.AfterValidator(_contained)]
"""A POSIX path that stays inside the manifest's own folder."""


NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,63}$"
"""What a recipe may be called. Folders here and on the device carry the name, so a manifest with another is refused."""

RecipeName = Annotated[str, pydantic.Field(pattern=NAME_PATTERN)]


class FileEntry(Part):
    """A file of a folder: relative path, size in bytes, lower-case hex SHA-256."""

    path: RelativePath
    size: int = pydantic.Field(ge=0)
    sha256: str = pydantic.Field(pattern=r"^[0-9a-f]{64}$")
