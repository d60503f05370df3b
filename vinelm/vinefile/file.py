"""The ``.vine`` file: an annotated trie as a ZIP of stored ``.npy`` arrays and one ``manifest.json``. No pickle.

Each array is a member ``NAME.npy``, which any ZIP tool and ``numpy.load`` can read. Its bytes are not compressed and start at a
multiple of 64, so that the file can be mapped into memory. The manifest holds the format version, the stages and models of the
trie, the template, the catalog with its prices and their dates, and ``meta`` (provenance). Loading verifies the checksum of
every member. Of the catalog, only models, prices and engines are read. Anybody may have written the file, so it must not decide
where calls are sent.
"""

from __future__ import annotations

import io
import json
import mmap as memory_map
import os
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from vinelm.catalog import Catalog
from vinelm.errors import TrieFileError
from vinelm.foreign_code import explained
from vinelm.io.atomic import atomic_path
from vinelm.io.file_kinds import instead_of, near
from vinelm.io.reading import open_regular
from vinelm.template import Template
from vinelm.trie import MergedTrie, Trie
from vinelm.trie.annotated_trie import NODE_ARRAYS, OPTIONAL_ARRAYS, AnnotatedTrie, SignalTrie
from vinelm.trie.difficulty import DIFFICULTY_ARRAYS, DifficultyRates
from vinelm.trie.outcomes import OUTCOME_ARRAYS, Outcomes
from vinelm.trie.verdict import Verdict
from vinelm.vinefile.structure import check_annotated, check_edges

FORMAT = "vinelm-trie"
VERSION = 4
"""Incremented when an older reader would misread the file. Newer readers open older files."""
ALIGNMENT = 64
MAPPED_FROM = 64 * 2**20
"""Size in bytes from which a file is mapped into memory instead of read."""
_MANIFEST = "manifest.json"
SIGNALS, OUTCOMES = "signals.", "outcomes."
"""Prefixes of the names of the signal trie's arrays and of its outcomes' arrays."""
_OUTCOME_ARRAYS = (*OUTCOME_ARRAYS, "cost_spread")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # a fixed date, so that the same trie gives the same bytes
_PADDING_ID = 0x4C56  # "VL": our tag of the ZIP extra field that carries the padding
_LOCAL_HEADER = 30

Array = npt.NDArray[Any]


_NAME_AT = 30  # offset of the first entry's name in a ZIP file


def _require_vine(path: Path) -> None:
    """Raise :class:`TrieFileError` if ``path`` is an existing file that is not a ``.vine`` file, since writing would
    destroy it.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_NAME_AT + len(_MANIFEST))
    except OSError:  # missing, or reported when writing
        return
    if head and not (head.startswith(b"PK\x03\x04") and head[_NAME_AT:] == _MANIFEST.encode()):
        raise TrieFileError(f"{path}: exists, and is no trie file: remove it, or use another name for the trie")


def save_trie(path: str | Path, annotated: AnnotatedTrie) -> None:
    """Write an annotated trie to a ``.vine`` file, atomically: an old file stays until the new one is on disk.

    Args:
        path: The file to write or replace. Its folder must exist.
        annotated: The trie. The same trie gives the same bytes.

    Raises:
        TrieFileError: The file cannot be written, ``path`` is not a regular file, or ``meta`` is not plain JSON. Or the trie is
            a trie of signals, which can only be saved as the ``signals`` of its trie of paths. Or its ``signals`` are for
            graphs that can only return the last answer (:meth:`SignalTrie.returning_last`).
    """
    path = Path(path)
    if isinstance(annotated, SignalTrie):
        raise TrieFileError(f"{path}: a trie of outcomes has no file of its own: save the path trie that holds it as `signals`")
    text, arrays = _stored(path, annotated)
    _require_vine(path)
    try:
        with atomic_path(path) as draft, draft.open("xb") as file:
            _write(file, text, arrays)
    except OSError as error:
        raise TrieFileError(
            f"{path}: cannot write the trie: {error.strerror}: choose a folder with room that exists"
        ) from error


def load_trie(path: str | Path, *, mmap: bool | Literal["file"] = True) -> AnnotatedTrie:
    """Read an annotated trie that :func:`save_trie` wrote, in this version or an older one. Its arrays are read-only.

    Changing or truncating the file afterwards does not affect the trie, except with ``mmap="file"``.

    Args:
        path: The ``.vine`` file.
        mmap: True copies a file of 64 MB or more to a temporary file without a name and maps this copy into memory. The copy
            needs space in the folder for temporary files. Smaller files are read into memory. False always reads into memory.
            ``"file"`` maps the file itself, whatever its size, so that all processes share one copy of its arrays in memory.
            Then replace it only by another file, as :func:`save_trie` does: writing into it would crash these processes.

    Raises:
        TrieFileError: The file is missing, damaged, written by a newer version, or has arrays that do not form a trie.
    """
    path = Path(path)
    try:
        with open_regular(path) as file:
            data = _content(file, mmap=mmap)
    except FileNotFoundError as error:
        raise TrieFileError(f"{path}: no such trie file{near(path)}: write one with `vinelm estimate`") from error
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        if other := instead_of(path, "a trie file", "`vinelm estimate`"):
            raise TrieFileError(f"{path}: cannot read the trie: {other}", code="other-file") from error
        raise TrieFileError(f"{path}: cannot read the trie: {error}: write it again with `vinelm estimate`") from error
    try:
        members = _members(data)
        manifest = json.loads(bytes(members[_MANIFEST]).decode("utf-8"))
        _check_version(path, manifest)
        annotated = _annotated(manifest, members)
    except TrieFileError:
        raise
    except Exception as error:  # damaged bytes can make zipfile, json and numpy raise anything
        if other := instead_of(path, "a trie file", "`vinelm estimate`"):
            raise TrieFileError(f"{path}: {other}", code="other-file") from error
        raise TrieFileError(
            f"{path}: not a trie file, or damaged ({_one_line(error)}): write it again with `vinelm estimate`"
        ) from error
    with explained(lambda e: TrieFileError(f"{path}: not a valid trie: {_one_line(e)}: write it again with `vinelm estimate`")):
        check_annotated(annotated)  # may raise anything: for a label that is not text, or a template without models
    return annotated


# -- writing ---------------------------------------------------------------------------------------------------


def _stored(path: Path, annotated: AnnotatedTrie) -> tuple[str, dict[str, Array]]:
    """Return the content of a trie's file: the manifest as text, and the arrays by name. ``path`` is used in error messages."""
    arrays = _arrays_of(annotated)
    plain: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "stages": list(annotated.trie.stages),
        "models": list(annotated.trie.models),
        "template": annotated.template.to_dict(),
        "catalog": Catalog.embedded(annotated.catalog.to_dict(), where="catalog of the trie").to_dict(),
        "meta": dict(annotated.meta),
    }
    signals = annotated.signals
    if signals is not None:
        if not signals.outcomes.returns_earlier:
            raise TrieFileError(
                f"{path}: signals is no trie of outcomes that may return earlier answers: save it as it was estimated"
            )
        plain["signals"] = {"arms": list(signals.trie.stages), "meta": dict(signals.meta), **signals.outcomes.to_dict()}
        arrays |= {f"{SIGNALS}{name}": values for name, values in _arrays_of(signals).items()}
        arrays |= {f"{OUTCOMES}{name}": getattr(signals.outcomes, name) for name in _OUTCOME_ARRAYS}
    if annotated.verdict is not None:
        plain["verdict"] = annotated.verdict.held()
    try:
        return json.dumps(plain, indent=1, sort_keys=True, allow_nan=False), arrays
    except (TypeError, ValueError) as error:
        raise TrieFileError(
            f"{path}: the trie's meta is not plain JSON ({error}): keep strings, numbers, lists and dicts"
        ) from error


def _arrays_of(annotated: AnnotatedTrie) -> dict[str, Array]:
    arrays: dict[str, Array] = {f"trie.{name}": getattr(annotated.trie, name) for name in annotated.trie.array_names}
    arrays.update({name: getattr(annotated, name) for name in NODE_ARRAYS})
    if annotated.difficulty is not None:
        found = {name: getattr(annotated.difficulty, name) for name in DIFFICULTY_ARRAYS}
        arrays |= {f"difficulty.{name}": values for name, values in found.items() if values is not None}
    optional = {name: getattr(annotated, name) for name in OPTIONAL_ARRAYS}
    return arrays | {name: values for name, values in optional.items() if values is not None}


def _write(file: BinaryIO, manifest: str, arrays: Mapping[str, Array]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(_MANIFEST, _EPOCH), manifest.encode())
        for name, values in arrays.items():
            buffer = io.BytesIO()
            np.save(buffer, np.ascontiguousarray(values), allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy", _EPOCH)
            fill = -(file.tell() + _LOCAL_HEADER + len(entry.filename.encode()) + 4) % ALIGNMENT
            entry.extra = struct.pack("<HH", _PADDING_ID, fill) + bytes(fill)  # the data begin at a multiple of the alignment
            archive.writestr(entry, buffer.getvalue())


# -- reading ---------------------------------------------------------------------------------------------------


def _content(file: BinaryIO, *, mmap: bool | Literal["file"]) -> Any:
    """Return the file's bytes: in memory or, if the file is large, as a memory map of a private copy. With ``mmap="file"``,
    return a memory map of the file itself.

    A copy is needed because truncating a mapped file would crash this process.
    """
    if mmap == "file":
        return memory_map.mmap(file.fileno(), 0, access=memory_map.ACCESS_READ)
    if not mmap or os.fstat(file.fileno()).st_size < MAPPED_FROM:
        return file.read()
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(file, copy, 2**20)
        copy.flush()
        return memory_map.mmap(copy.fileno(), 0, access=memory_map.ACCESS_READ)


def _members(data: Any) -> dict[str, memoryview]:
    """Return the raw bytes of each member of the ZIP file ``data``, keyed by name, after verifying the checksums. Nothing
    is copied.
    """
    view = memoryview(data)
    members: dict[str, memoryview] = {}
    with zipfile.ZipFile(_Window(view)) as archive:
        for entry in archive.infolist():
            if entry.compress_type != zipfile.ZIP_STORED:
                raise zipfile.BadZipFile(f"{entry.filename} is compressed")
            name_length, extra_length = struct.unpack_from("<HH", view, entry.header_offset + 26)
            name = view[entry.header_offset + _LOCAL_HEADER :][:name_length]
            if name != entry.orig_filename.encode():  # otherwise an optional array under another name would be missing silently
                raise zipfile.BadZipFile(f"{entry.filename} has two names")
            start = entry.header_offset + _LOCAL_HEADER + name_length + extra_length
            content = view[start : start + entry.file_size]
            if len(content) != entry.file_size or zlib.crc32(content) != entry.CRC:
                raise zipfile.BadZipFile(f"checksum of {entry.filename} does not match")
            members[entry.filename] = content
    return members


class _Window(io.RawIOBase):
    """A seekable file object over bytes in memory, as ``zipfile`` needs it. It copies only the bytes that are read."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._at = 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: len(self._view)}[whence]
        if start + offset < 0:
            raise OSError("seek before the start of the file")
        self._at = start + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = len(self._view) if size is None or size < 0 else self._at + size
        chunk = bytes(self._view[self._at : end])
        self._at += len(chunk)
        return chunk


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _check_version(path: Path, manifest: Mapping[str, Any]) -> None:
    if manifest["format"] != FORMAT:
        raise ValueError(f"format {manifest['format']!r}")
    if int(manifest["version"]) > VERSION:
        raise TrieFileError(
            f"{path}: trie format {manifest['version']}, written by a newer VineLM; this one reads up to {VERSION}: upgrade"
        )


def _array(content: memoryview) -> Array:
    """Return the read-only array that a member's bytes contain, without a copy; raises ``ValueError`` if the bytes are not
    a plain array.
    """
    head = io.BytesIO(bytes(content[:4096]))
    version = np.lib.format.read_magic(head)
    if version != (1, 0):
        raise ValueError(f"array version {version}")
    shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(head)
    if dtype.hasobject or fortran_order:
        raise ValueError("not a plain array")
    values = np.frombuffer(content, dtype, offset=head.tell()).reshape(shape)
    values.flags.writeable = False
    return values


def _annotated(manifest: Mapping[str, Any], members: Mapping[str, memoryview]) -> AnnotatedTrie:
    arrays = {name.removesuffix(".npy"): _array(data) for name, data in members.items() if name.endswith(".npy")}
    signals = _signals(manifest, arrays) if "signals" in manifest else None
    found = manifest.get("verdict")
    verdict = None if found is None else Verdict.from_dict(found)
    return AnnotatedTrie(**_parts(manifest, arrays), signals=signals).judged(verdict)


def _signals(manifest: Mapping[str, Any], arrays: Mapping[str, Array]) -> SignalTrie:
    """Return the trie of signals that a file contains. The trie is meant for graphs that can return an earlier answer."""
    about = manifest["signals"]
    own = {name.removeprefix(SIGNALS): values for name, values in arrays.items() if name.startswith(SIGNALS)}
    labels = Outcomes.labels_from(about["labels"])
    columns: dict[str, Any] = {name: arrays[f"{OUTCOMES}{name}"] for name in _OUTCOME_ARRAYS}
    outcomes = Outcomes(labels, tuple(about["stages"]), bool(about["goes_on"]), **columns)
    return SignalTrie(**_parts({**manifest, "stages": about["arms"], "meta": about["meta"]}, own), outcomes=outcomes)


def _parts(manifest: Mapping[str, Any], arrays: Mapping[str, Array]) -> dict[str, Any]:
    """Return the arguments, by name, with which :class:`AnnotatedTrie` is made from the file's manifest and arrays."""
    template = Template.from_dict(manifest["template"])
    kind = MergedTrie if "trie.source" in arrays else Trie  # a file with edges has nodes with several parents
    if kind is MergedTrie:
        check_edges(len(arrays["trie.depth"]), arrays["trie.source"], arrays["trie.target"])
    labels = {name: arrays[f"trie.{name}"] for name in kind.array_names}
    trie = kind(stages=manifest["stages"], models=manifest["models"], **labels)
    required: dict[str, Any] = {name: arrays[name] for name in NODE_ARRAYS}
    optional: dict[str, Any] = {name: arrays.get(name) for name in OPTIONAL_ARRAYS}
    return {
        "trie": trie,
        "template": template,
        "catalog": Catalog.embedded(manifest["catalog"], where="catalog of the trie file"),
        "meta": manifest["meta"],
        "difficulty": _difficulty(arrays),
        **required,
        **optional,
    }


def _difficulty(arrays: Mapping[str, Array]) -> DifficultyRates | None:
    given = {name: arrays[f"difficulty.{name}"] for name in DIFFICULTY_ARRAYS if f"difficulty.{name}" in arrays}
    return DifficultyRates(**given) if given else None
