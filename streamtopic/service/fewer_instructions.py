"""Have numba write fewer LLVM instructions for the same work, in a process that does nothing but compile.

LLVM drops in any case what is left out here. But numba writes it as text first, and LLVM reads and improves it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir as llvm
from numba.core import analysis, cgutils, ir, lowering, postproc, transforms, types
from numba.core.imputils import builtin_registry
from numba.cpython import rangeobj  # noqa: F401  it fills the registry
from numba.extending import lower_builtin
from numba.np import arrayobj

__all__ = ["write_fewer_instructions"]

# Objects of numba and llvmlite, which have no types for mypy.
_Numba = Any

_Proxy: _Numba = cgutils.ValueStructProxy
# numba's own, in memory: there is no public name.
_InMemory: _Numba = cgutils._StructProxy  # noqa: SLF001
_Lower: _Numba = lowering.Lower


def write_fewer_instructions() -> None:
    """Replace parts of numba in this whole process: structures, variables of a kernel, and loops over ranges.

    Where numba has changed inside, this raises an error, or LLVM refuses the code: so only for a process that may fail.
    """
    _hold_structures()
    _hold_variables()
    _count_up()
    _find_lifetimes_late()


def _hold_structures() -> None:
    """Keep an array, a pair or a range that numba works on as a value of LLVM.

    numba stores it to memory and loads each field from there: 30 instructions for an entry of an array, not 10.
    """
    methods = {name: method for name, method in vars(_Held).items() if callable(method)}
    if methods.keys() & vars(_Proxy).keys():
        raise TypeError("numba has a structure of another kind")
    for name, method in methods.items():
        setattr(_Proxy, name, method)
    make_any: _Numba = arrayobj.make_array

    @cache
    def make_array(array: _Numba) -> _Numba:
        # numba makes a new class at each access, and tells LLVM each time that lengths are not negative.
        return cgutils.create_struct_proxy(array) if type(array) is types.Array else make_any(array)

    arrayobj.make_array = make_array


class _Held:
    """Methods of a structure that is a value, until another block of the kernel or a pointer needs it in memory."""

    def __init__(self: _Numba, context: _Numba, builder: _Numba, value: _Numba = None, ref: _Numba = None) -> None:
        if ref is not None or type(self)._make_refs is not _InMemory._make_refs:  # noqa: SLF001  as above
            _InMemory.__init__(self, context, builder, value, ref)
            return
        self._context = context
        self._datamodel = context.data_model_manager[self._fe_type]
        self._builder = builder
        self._be_type = self._get_be_type(self._datamodel)
        # As numba's memory, it begins with zeros.
        self._held = llvm.Constant(self._be_type, None) if value is None else value
        self._block = builder.basic_block

    def _is_held(self: _Numba) -> bool:
        """Tell whether the value is known here. Behind a branch only memory knows it."""
        if "_held" not in vars(self):
            return False
        if self._builder.basic_block is self._block:
            return True
        self._to_memory()
        return False

    def _to_memory(self: _Numba) -> None:
        builder, held = self._builder, self._held
        del self._held
        memory = cgutils.alloca_once(builder, self._be_type)
        if builder.basic_block is self._block:
            builder.store(held, memory)
        else:
            with builder.goto_block(self._block):
                builder.store(held, memory)
        self._value = self._outer_ref = memory

    def __getattr__(self: _Numba, name: str) -> _Numba:
        # The names of numba's memory.
        if name in {"_value", "_outer_ref"} and "_held" in vars(self):
            self._to_memory()
            return vars(self)[name]
        return _InMemory.__getattr__(self, name)

    def __getitem__(self: _Numba, index: int) -> _Numba:
        return _field(self._builder, self._held, index) if self._is_held() else _InMemory.__getitem__(self, index)

    def __setitem__(self: _Numba, index: int, value: _Numba) -> None:
        if self._is_held() and value.type == self._be_type.elements[index]:
            self._held = self._builder.insert_value(self._held, value, index)
        else:
            _InMemory.__setitem__(self, index, value)

    def _getvalue(self: _Numba) -> _Numba:
        return self._held if self._is_held() else _InMemory._getvalue(self)  # noqa: SLF001  as above

    def _setvalue(self: _Numba, value: _Numba) -> None:
        if self._is_held():
            self._held = value
        else:
            _InMemory._setvalue(self, value)  # noqa: SLF001  as above


def _field(builder: _Numba, structure: _Numba, index: int) -> _Numba:
    """Return a field of a structure of LLVM: the value that was put there, where that is known."""
    while isinstance(structure, llvm.instructions.InsertValue) and len(structure.indices) == 1:
        if structure.indices[0] == index:
            return structure.value
        structure = structure.aggregate
    return builder.extract_value(structure, index)


def _hold_variables() -> None:
    """Give memory only to those variables of a kernel that get a value in several places.

    numba also does so for a variable that is read in another block, and loads the old value before each change.
    """
    find, store, delete = _Lower._find_singly_assigned_variable, _Lower.storevar, _Lower.delvar  # noqa: SLF001  as above

    def counted(self: _Numba, name: str) -> bool:
        """Tell whether a variable holds a reference that numba counts."""
        if not self.context.enable_nrt:
            return False
        model = self.context.data_model_manager[self.typeof(name)]
        return bool(model.contains_nrt_meminfo())

    def find_single(self: _Numba) -> None:
        find(self)
        if self.generator_info is None:
            single = _assigned_once(self.blocks)
            self._singly_assigned_vars |= {name for name in single if not counted(self, name)}

    def store_variable(self: _Numba, value: _Numba, name: str, argidx: int | None = None) -> None:
        if name in self._singly_assigned_vars or counted(self, name):
            store(self, value, name, argidx)
            return
        self._alloca_var(name, self.typeof(name))
        self.builder.store(value, self.getvar(name))

    def delete_variable(self: _Numba, name: str) -> None:
        if counted(self, name):
            delete(self, name)

    _Lower._find_singly_assigned_variable = find_single  # noqa: SLF001  as above
    _Lower.storevar, _Lower.delvar = store_variable, delete_variable


def _assigned_once(blocks: _Numba) -> set[str]:
    """Return the variables that get a value in one place, which each way to a use of the variable passes."""
    uses: _Numba = analysis.compute_use_defs(blocks)
    graph: _Numba = analysis.compute_cfg_from_blocks(blocks)
    passed_before = graph.dominators()
    places: dict[str, list[int]] = {}
    for label, block in blocks.items():
        for statement in block.find_insts(ir.Assign):
            places.setdefault(statement.target.name, []).append(label)
    found = {name: labels[0] for name, labels in places.items() if len(labels) == 1}
    for label, names in uses.usemap.items():
        for name in names:
            # numba works on blocks in the order of their labels.
            place = found.get(name, label)
            if place >= label or place not in passed_before[label]:
                found.pop(name, None)
    return found.keys() - analysis.must_use_alloca(blocks)


def _count_up() -> None:
    """Write a loop over range(stop) or range(start, stop) without the steps that another step than 1 needs.

    numba divides to know how often such a loop runs: 80 instructions, not 30.
    """
    state, iterator = types.range_state64_type, types.range_iter64_type
    known = builtin_registry.functions
    begin_any = next(function for function, key, kinds in known if key == "getiter" and kinds == (state,))

    @lower_builtin("getiter", state)
    def begin(context: _Numba, builder: _Numba, signature: _Numba, args: _Numba) -> _Numba:
        start, stop, step = (_field(builder, args[0], index) for index in range(3))
        if not (isinstance(step, llvm.Constant) and step.constant == 1):
            return begin_any(context, builder, signature, args)
        distance = builder.sub(stop, start)
        zero = llvm.Constant(distance.type, 0)
        left = cgutils.alloca_once(builder, distance.type)
        number = cgutils.alloca_once_value(builder, start)
        # A branch, as numba has it: LLVM makes other machine code of a choice between two values.
        with builder.if_else(builder.icmp_signed(">", distance, zero)) as (some, none):
            with some:
                builder.store(distance, left)
            with none:
                builder.store(zero, left)
        loop = context.make_helper(builder, iterator)
        loop.iter, loop.stop, loop.step, loop.count = number, stop, step, left
        return loop._getvalue()  # noqa: SLF001  as above

    @lower_builtin("iternext", iterator)
    def go_on(context: _Numba, builder: _Numba, signature: _Numba, args: _Numba) -> _Numba:
        loop = context.make_helper(builder, iterator, args[0])
        memory, counter, step = loop.iter, loop.count, loop.step
        left, number = builder.load(counter), builder.load(memory)
        more = builder.icmp_signed(">", left, llvm.Constant(left.type, 0))
        pair = context.make_helper(builder, signature.return_type)
        pair.first, pair.second = number, more
        result = pair._getvalue()  # noqa: SLF001  as above
        with builder.if_then(more):
            builder.store(builder.sub(left, llvm.Constant(left.type, 1), flags=["nsw"]), counter)
            builder.store(builder.add(number, step), memory)
        return result


def _find_lifetimes_late() -> None:
    """Look for the last use of each variable only where numba asks for it, not after each change of a kernel."""
    processor: _Numba = postproc.PostProcessor
    run = processor.run

    # The names are those of numba's arguments.
    def run_late(self: _Numba, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:  # noqa: FBT001, FBT002  as numba calls it
        function = self.func_ir
        if function.is_generator:
            run(self, emit_dels, extend_lifetimes)
            return
        function.blocks = transforms.canonicalize_cfg(function.blocks)
        function.variable_lifetime = postproc.VariableLifetime(function.blocks)
        function.generator_info = None
        if emit_dels:
            self._insert_var_dels(extend_lifetimes=extend_lifetimes)

    processor.run = run_late
