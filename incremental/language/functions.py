"""Language room: what a Python function does. In: Spark's node of one. Out: a digest that tells it from another.

Spark's pickle of a function holds file names and line numbers, so that a comment above it changes the pickle, and of an
imported function it holds the name alone, so that another body does not. The digest is of what runs: bytecode,
constants, defaults, enclosed and global values, and the functions, classes and modules of the user's own that it refers
to. What comes with Python or from an installed package counts by its name.
"""

from __future__ import annotations

import copyreg
import dis
import hashlib
import sys
import sysconfig
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, cast

from pyspark.serializers import CloudPickleSerializer

from incremental.spark.catalyst import J

FUNCTIONS = {"PythonUDF", "PythonUDAF", "PythonUDTF"}
LIBRARIES = tuple({Path(sysconfig.get_path(kind)).resolve() for kind in ("stdlib", "platstdlib", "purelib", "platlib")})
NOT_MEANING = {
    "__doc__", "__module__", "__qualname__", "__dict__", "__weakref__", "__firstlineno__", "__static_attributes__",
    "__annotations__", "_abc_impl",
}  # fmt: skip


def function_digest(node: J) -> str:
    """12 hexadecimal digits, the same in every process for functions that do the same."""
    pickled = bytes(int(byte) % 256 for byte in str(node.func().command().mkString(",")).split(","))
    try:
        meaning = repr(Meaning().of(cast(Any, CloudPickleSerializer()).loads(pickled)))
    except Exception:  # whatever the user's objects raise: then the pickle itself has to tell
        meaning = repr(pickled)
    return hashlib.sha256(f"{node.evalType()} {meaning}".encode()).hexdigest()[:12]


class Meaning:
    """Turns a value into plain tuples and texts that print alike where values mean the same."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, object]] = {}  # the values too, so that no identity is given again

    def of(self, value: Any) -> object:
        """The meaning of one value; one that was met before is told by its number."""
        if value is None or isinstance(value, bool | int | float | complex | str | bytes):
            return repr(value)
        if not isinstance(value, tuple | frozenset | CodeType):  # which cannot hold themselves
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
                return "dict", *((self.of(key), self.of(each)) for key, each in items)
            case set() | frozenset():
                return "set", *sorted(repr(Meaning().of(each)) for each in cast("set[Any]", value))
            case _:
                return type(value).__name__, *(self.of(each) for each in value)

    def _object(self, value: Any) -> object:
        named = isinstance(value, FunctionType | MethodType | BuiltinFunctionType | type)
        if named and installed(value.__module__):
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
                told = [(name, self.of(each)) for name, each in members if name not in NOT_MEANING]
                return "class", [self.of(each) for each in value.__bases__], told
            case property():
                return "property", *(self.of(part) for part in (value.fget, value.fset, value.fdel))
            case staticmethod() | classmethod():
                return "method", self.of(cast(Any, value).__func__)
            case _:  # by what pickle would make it of
                kind = cast("type[Any]", type(value))
                reduced = copyreg.dispatch_table.get(kind, lambda each: each.__reduce_ex__(4))
                return self.of(kind), self.of(reduced(value))

    def _function(self, function: FunctionType) -> object:
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        return (
            self._code(function.__code__, function.__doc__),
            self.of(function.__defaults__),
            self.of(function.__kwdefaults__),
            [self.of(each) for each in cells],
            [(name, self._global(function, name)) for name in sorted(mentioned(function.__code__, "GLOBAL"))],
        )

    def _global(self, function: FunctionType, name: str) -> object:
        """What a global name means; of a module of the user's own, what the function may take from it."""
        value = function.__globals__.get(name)
        if not isinstance(value, ModuleType) or installed(value.__name__):
            return self.of(value)
        taken = sorted(mentioned(function.__code__, "ATTR", "METHOD") & set(vars(value)))
        return value.__name__, [(each, self.of(vars(value)[each])) for each in taken]

    def _code(self, code: CodeType, documentation: str | None) -> object:
        constants = [None if i == 0 and each == documentation else each for i, each in enumerate(code.co_consts)]
        arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        told = code.co_code, code.co_names, arguments, code.co_freevars, code.co_exceptiontable
        return *told, [self.of(each) for each in constants]


def mentioned(code: CodeType, *kinds: str) -> set[str]:
    """The names that code and what is defined in it take as globals, or as attributes."""
    found = {str(i.argval) for i in dis.get_instructions(code) if any(kind in i.opname for kind in kinds)}
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return found.union(*(mentioned(each, *kinds) for each in inner))


def installed(module: str | None) -> bool:
    """Whether a module comes with Python or from an installed package."""
    known = sys.modules.get(module or "")
    if known is None or module == "__main__":
        return False
    file = getattr(known, "__file__", None)
    return file is None or any(Path(file).resolve().is_relative_to(library) for library in LIBRARIES)
