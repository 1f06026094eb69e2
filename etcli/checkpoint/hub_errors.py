"""What can go wrong between this machine and the Hugging Face hub, each with the way on."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import sys
from collections.abc import Iterator

from etcli.common.errors import CheckpointError, EtcliError, Problem, ToolError
from etcli.common.files import is_no_space

_LOG_IN = "Log in (hf auth login), or set HF_LOG_IN to a token that may read it."
# Whose exceptions come through in one version of the hub's package or another.
_LIBRARIES = ("httpx", "httpcore", "requests", "urllib3", "hf_xet", "huggingface_hub")
_COPY = (
    "or copy the hub's cache folder (HF_HOME) from a machine that has it, or name a downloaded folder as model.source."
)


def missing_package(source: str) -> Problem:
    """The problem of `huggingface_hub` not being installed, where it is needed."""
    return ToolError.problem(
        f"{source} needs the package huggingface_hub, which is not installed",
        code="hub.package",
        hint=f"Install it: {sys.executable} -m pip install 'etcli[hub]'",
    )


def package_is_missing() -> bool:
    """Whether `huggingface_hub` cannot be imported; does not import it."""
    return importlib.util.find_spec("huggingface_hub") is None


def offline_problem(source: str) -> Problem:
    """The problem of downloads being forbidden."""
    return CheckpointError.problem(
        f"{source} is not whole in the cache, and ETCLI_OFFLINE or HF_HUB_OFFLINE forbids downloads",
        code="hub.offline",
        hint=f"Unset it for one run, {_COPY}",
    )


@contextlib.contextmanager
def explained(source: str, repository: str) -> Iterator[None]:
    """Failures of `huggingface_hub` raised inside, as the problems that they are.

    Raises:
        CheckpointError: in place of what the package raises.
    """
    from huggingface_hub import errors

    try:
        yield
    except EtcliError:
        raise
    except errors.OfflineModeIsEnabled:
        raise EtcliError.many([offline_problem(source)]) from None
    except errors.GatedRepoError as error:
        raise CheckpointError(
            f"{repository} is gated: its publisher asks for terms to be accepted, and this account has not done so or is not known"
            f"{_status(error)}",
            code="hub.gated",
            hint=f"Accept the terms on the model's page. {_LOG_IN}",
        ) from None
    except errors.RevisionNotFoundError:
        raise CheckpointError(
            f"{repository} has no revision {source.rpartition('@')[2]}",
            code="hub.revision",
            hint=f"Name a branch, tag or commit of it, as hf:{repository}@main.",
        ) from None
    except errors.RepositoryNotFoundError as error:
        raise CheckpointError(
            f"there is no model {repository} on the hub, or this account may not see it{_status(error)}",
            code="hub.repository",
            hint=f"Check the name. For a private model: {_LOG_IN}",
        ) from None
    except errors.HFValidationError as error:
        raise CheckpointError(
            f"{repository} is no name of a model: {_line(error)}", code="hub.repository", hint="Write ORG/NAME."
        ) from None
    except errors.HfHubHTTPError as error:
        raise _http(source, repository, error) from None
    except Exception as error:
        if is_no_space(error):
            raise CheckpointError(
                f"no space left while fetching {repository}",
                code="source.no_space",
                hint="Free some space, or set HF_HOME to a folder on another disk.",
            ) from None
        if not _of_the_network(error):
            raise
        raise CheckpointError(
            f"{repository} cannot be fetched: {_line(error)}",
            code="hub.network",
            hint=f"Check the network and the proxy (HTTPS_PROXY), {_COPY}",
        ) from None


def _http(source: str, repository: str, error: Exception) -> CheckpointError:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        return CheckpointError(
            f"the hub does not let this account read {repository}{_status(error)}", code="hub.gated", hint=_LOG_IN
        )
    return CheckpointError(
        f"{repository} cannot be fetched: {_line(error)}",
        code="hub.download",
        hint=f"Try again later, {_COPY}" if status is None or status >= 429 else f"Check model.source: {source}",
    )


def _of_the_network(error: Exception) -> bool:
    """Whether a library below the hub's package raised it, or the system: anything else is a fault of etcli's own."""
    modules = [kind.__module__ for kind in type(error).__mro__]
    return isinstance(error, OSError) or any(module.startswith(_LIBRARIES) for module in modules)


def _status(error: Exception) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    return f" (HTTP {status})" if status else ""


def _line(error: Exception) -> str:
    """The first line of a message, without what might be a secret in an address."""
    text = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return re.sub(r"//[^/@\s]+@", "//", text)[:200]
