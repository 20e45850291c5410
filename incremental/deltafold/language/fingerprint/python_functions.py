"""Compute a digest of a Python function that depends on its behaviour alone.

Spark's pickle of a function contains file names and line numbers, so a comment above it changes the pickle; for an
imported function it contains only the name, so another body does not. The digest covers all code and values that run:
bytecode, constants, defaults, enclosed and global values, and the user's own functions, classes and modules that it
refers to; of a module that is imported within a function, its source but comments. Functions and modules of Python or
of installed packages are identified by name.
"""

from __future__ import annotations

import ast
import copyreg
import dis
import hashlib
import importlib.util
import sys
import sysconfig
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, cast

from pyspark.serializers import CloudPickleSerializer

from deltafold.spark.catalyst import J

PYTHON_EXPRESSIONS = {"PythonUDF", "PythonUDAF", "PythonUDTF"}
LIBRARIES = tuple({Path(sysconfig.get_path(kind)).resolve() for kind in ("stdlib", "platstdlib", "purelib", "platlib")})
IGNORED_MEMBERS = {
    "__doc__", "__module__", "__qualname__", "__dict__", "__weakref__", "__firstlineno__", "__static_attributes__",
    "__annotations__", "_abc_impl",
}  # fmt: skip


def function_digest(node: J) -> str:
    """Return 12 hexadecimal digits, the same in every process for functions with the same behaviour."""
    pickled = bytes(int(byte) % 256 for byte in str(node.func().command().mkString(",")).split(","))
    try:
        meaning = repr(Meaning().of(cast(Any, CloudPickleSerializer()).loads(pickled)))
    except Exception:  # any exception of the user's objects: fall back to the pickle itself
        meaning = repr(pickled)
    return hashlib.sha256(f"{node.evalType()} {meaning}".encode()).hexdigest()[:12]


class Meaning:
    """Turns values into plain tuples and texts that are equal where the values behave the same."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, object]] = {}  # with the values, so that no identity is reused

    def of(self, value: Any) -> object:
        """Return the meaning of one value; a value seen before is represented by its number."""
        if value is None or isinstance(value, bool | int | float | complex | str | bytes):
            return repr(value)
        if not isinstance(value, tuple | frozenset | CodeType):  # which cannot contain themselves
            if id(value) in self._seen:
                return "again", self._seen[id(value)][0]
            self._seen[id(value)] = len(self._seen), value
        if isinstance(value, list | tuple | set | frozenset | dict):
            return self._collection(value)
        return self._code(value, None) if isinstance(value, CodeType) else self._object(value)

    def _collection(self, value: Any) -> object:
        match value:
            case dict():
                items = cast("dict[Any, Any]", value).items()
                return "dict", *((self.of(key), self.of(member)) for key, member in items)
            case set() | frozenset():
                return "set", *sorted(repr(Meaning().of(member)) for member in cast("set[Any]", value))
            case _:
                return type(value).__name__, *(self.of(member) for member in value)

    def _object(self, value: Any) -> object:
        named = isinstance(value, FunctionType | MethodType | BuiltinFunctionType | type)
        if named and is_installed(value.__module__):
            return value.__module__, value.__qualname__
        match value:
            case FunctionType():
                return self._function(value)
            case MethodType():
                return self.of(value.__func__), self.of(value.__self__)
            case ModuleType():
                return "module", value.__name__
            case type():
                members = sorted(vars(value).items())
                parts = [(name, self.of(member)) for name, member in members if name not in IGNORED_MEMBERS]
                return "class", [self.of(base) for base in value.__bases__], parts
            case property():
                return "property", *(self.of(part) for part in (value.fget, value.fset, value.fdel))
            case staticmethod() | classmethod():
                return "method", self.of(cast(Any, value).__func__)
            case _:  # by what pickle would rebuild it from
                kind = cast("type[Any]", type(value))
                reduced = copyreg.dispatch_table.get(kind, lambda instance: instance.__reduce_ex__(4))
                return self.of(kind), self.of(reduced(value))

    def _function(self, function: FunctionType) -> object:
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        return (
            self._code(function.__code__, function.__doc__),
            self.of(function.__defaults__),
            self.of(function.__kwdefaults__),
            [self.of(content) for content in cells],
            [(name, self._global(function, name)) for name in sorted(_mentioned_names(function.__code__, "GLOBAL"))],
            *_imported_sources(function.__code__),
        )

    def _global(self, function: FunctionType, name: str) -> object:
        """Return the meaning of a global name; of a user's module, the attributes that the function may read."""
        value = function.__globals__.get(name)
        if not isinstance(value, ModuleType) or is_installed(value.__name__):
            return self.of(value)
        read = sorted(_mentioned_names(function.__code__, "ATTR", "METHOD") & set(vars(value)))
        return value.__name__, [(name, self.of(vars(value)[name])) for name in read]

    def _code(self, code: CodeType, documentation: str | None) -> object:
        constants = [
            None if i == 0 and constant == documentation else constant for i, constant in enumerate(code.co_consts)
        ]
        arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        fields = code.co_code, code.co_names, arguments, code.co_freevars, code.co_exceptiontable
        return *fields, [self.of(constant) for constant in constants]


def _mentioned_names(code: CodeType, *kinds: str) -> set[str]:
    """Return the names that code, and any code defined in it, reads as globals or as attributes."""
    names = {str(i.argval) for i in dis.get_instructions(code) if any(kind in i.opname for kind in kinds)}
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return names.union(*(_mentioned_names(inner_code, *kinds) for inner_code in inner))


def _imported_sources(code: CodeType) -> list[tuple[str, str]]:
    """Return the user's own modules that code imports while it runs, with the digests of their source."""
    sources = list[tuple[str, str]]()
    for name in sorted(_mentioned_names(code, "IMPORT_NAME")):
        source = _user_source(name)
        if source is not None:
            text = ast.unparse(ast.parse(source.read_bytes()))  # without comments
            sources.append((name, hashlib.sha256(text.encode()).hexdigest()))
    return sources


def _user_source(module: str) -> Path | None:
    """Return the source file of a module that belongs neither to Python nor to an installed package."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):  # it is relative, or its package is not there
        return None
    path = Path(spec.origin).resolve() if spec is not None and spec.has_location and spec.origin else None
    return path if path is not None and path.suffix == ".py" and not _is_library(path) else None


def _is_library(file: Path) -> bool:
    """Return whether a file is in a folder of Python or of installed packages."""
    return any(file.is_relative_to(library) for library in LIBRARIES)


def is_installed(module: str | None) -> bool:
    """Return whether a module belongs to Python or to an installed package."""
    imported = sys.modules.get(module or "")
    if imported is None or module == "__main__":
        return False
    file = getattr(imported, "__file__", None)
    return file is None or _is_library(Path(file).resolve())
