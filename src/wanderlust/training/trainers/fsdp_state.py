"""Tensors of many processes on a disk that they share: states by PyTorch's distributed checkpoint, and safetensors."""

from __future__ import annotations

import os
import pickle
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, EnumType
from pathlib import Path
from typing import Any, cast

from torch import Tensor
from torch import distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from wanderlust.errors import StoreError, one_line, unwritten, writing

MAX_FILE_BYTES = 5 * 10**9
"""Size from which on the next tensors of a checkpoint go into another file."""
PARTS_FOLDER = "sharded"
"""Folder in which PyTorch's writer of safetensors keeps the parts."""
METADATA = ".metadata"
_PLAIN = {"collections", "pathlib", "pathlib._local", "torch", "torch._utils", "torch.serialization"}
_OURS = "torch.distributed.checkpoint."


class _MetadataUnpickler(pickle.Unpickler):
    """Reads a checkpoint's table of contents, which is a pickle, and nothing that could run code."""

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith(_OURS) or module in _PLAIN:
            return super().find_class(module, name)
        if (module, name) == ("builtins", "getattr"):  # how Python 3.11.0 to 3.11.3 write a member of an enumeration
            return _enum_member
        raise pickle.UnpicklingError(f"it names {module}.{name}")


def _enum_member(kind: object, name: object) -> Enum:
    if isinstance(kind, EnumType) and isinstance(name, str) and name in kind.__members__:
        return cast("Enum", kind[name])
    raise pickle.UnpicklingError(f"it reads the attribute {name!r}")


@contextmanager
def _saving(path: Path) -> Iterator[None]:
    """What cannot be written is a StoreError in all processes; PyTorch's own error is no `Exception`."""
    try:
        with writing(path), _alone_is_fine():
            yield
    except CheckpointException as error:
        raise unwritten(path, next(iter(error.failures.values()), (error,))[0]) from error


def save_tensors(path: Path, state: dict[str, Tensor]) -> None:
    """Every process writes its part; the folder is the old one or the new one, whenever the power fails."""
    partial, old = _temporary_paths(path)
    if _first():
        shutil.rmtree(partial, ignore_errors=True)
    _wait()
    with _saving(path):
        save(state, checkpoint_id=partial)
    _wait()
    if _first():
        if path.exists():
            shutil.rmtree(old, ignore_errors=True)
            path.replace(old)
        partial.replace(path)
        shutil.rmtree(old, ignore_errors=True)
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    _wait()


def save_safetensors(folder: Path, state: dict[str, Tensor], *, file_bytes: int = MAX_FILE_BYTES) -> None:
    """Every process writes its part, and the first puts the parts together: files of about `file_bytes` and an index.

    The names are those of `transformers`, which loads the folder once its configuration is beside them.
    """
    files, written = {}, 0
    for name, tensor in state.items():
        files[name] = 1 + written // file_bytes
        written += tensor.numel() * tensor.element_size()
    with _saving(folder):
        save(
            state,
            storage_writer=HuggingFaceStorageWriter(
                str(folder), fqn_to_index_mapping=files, save_distributed=True, enable_consolidation=True
            ),
        )
    _wait()
    if _first():
        shutil.rmtree(folder / PARTS_FOLDER, ignore_errors=True)
    _wait()


def load_tensors(path: Path, state: dict[str, Tensor]) -> None:
    """Fill the tensors of `state` in place, by name. StoreError when the folder is no such checkpoint, is damaged, or
    has not exactly these names and shapes; then they may be half filled."""
    _, old = _temporary_paths(path)
    source = path if path.exists() or not old.exists() else old
    try:
        with (source / METADATA).open("rb") as file:
            saved = _MetadataUnpickler(file).load().state_dict_metadata
        _compare(saved, state)
        with _alone_is_fine():
            load(state, checkpoint_id=source)
    except CheckpointException as error:
        reason = next(iter(error.failures.values()), (error,))[0]
        raise StoreError(f"cannot read the state {path}: {one_line(str(reason), 200)}") from error
    except (OSError, ValueError, RuntimeError, AttributeError, EOFError, pickle.UnpicklingError) as error:
        raise StoreError(f"cannot read the state {path}: {one_line(str(error), 200)}; it was left as it is") from error


def _compare(saved: dict[str, Any], state: dict[str, Tensor]) -> None:
    """Raises ValueError that names the first difference."""
    for name in saved.keys() ^ state.keys():
        raise ValueError(f"it is of another model: {name} is {'missing here' if name in saved else 'not in it'}")
    for name, tensor in state.items():
        if tuple(saved[name].size) != tuple(tensor.shape):
            raise ValueError(f"it is of another model: {name} is {tuple(saved[name].size)}, not {tuple(tensor.shape)}")


def _temporary_paths(path: Path) -> tuple[Path, Path]:
    return path.with_name(path.name + ".partial"), path.with_name(path.name + ".old")


@contextmanager
def _alone_is_fine() -> Iterator[None]:
    """PyTorch warns of a missing process group."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)
        yield


def _first() -> bool:
    return not dist.is_initialized() or dist.get_rank() == 0


def _wait() -> None:
    if dist.is_initialized():
        dist.barrier()
