"""Operations on values that are known."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import libcst as cst

from dsconf.formats.fsdp2.read_values import (
    ABSENT,
    UNKNOWN,
    Attr,
    Choice,
    Class,
    Function,
    Instance,
    Item,
    Known,
    Made,
    Opaque,
    Ref,
    Seq,
    Spread,
    Table,
    Value,
    plain,
    torch_name,
)

LARGEST = 1 << 80
"""No number of a training script is larger: one that is stands for itself, and is not computed with."""
_MOST_CHOICES = 6
"""What more values than these can be is not followed."""
_BINARY: Mapping[type[cst.CSTNode], tuple[str, Callable[[Any, Any], Any]]] = {
    cst.Add: ("+", operator.add),
    cst.Subtract: ("-", operator.sub),
    cst.Multiply: ("*", operator.mul),
    cst.Divide: ("/", operator.truediv),
    cst.FloorDivide: ("//", operator.floordiv),
    cst.Modulo: ("%", operator.mod),
    cst.Power: ("**", operator.pow),
    cst.Equal: ("==", operator.eq),
    cst.NotEqual: ("!=", operator.ne),
    cst.LessThan: ("<", operator.lt),
    cst.LessThanEqual: ("<=", operator.le),
    cst.GreaterThan: (">", operator.gt),
    cst.GreaterThanEqual: (">=", operator.ge),
    cst.Is: ("is", operator.is_),
    cst.IsNot: ("is not", operator.is_not),
    cst.In: ("in", lambda left, right: left in right),
    cst.NotIn: ("not in", lambda left, right: left not in right),
    cst.AddAssign: ("+", operator.add),
    cst.SubtractAssign: ("-", operator.sub),
    cst.MultiplyAssign: ("*", operator.mul),
    cst.DivideAssign: ("/", operator.truediv),
    cst.FloorDivideAssign: ("//", operator.floordiv),
    cst.ModuloAssign: ("%", operator.mod),
    cst.PowerAssign: ("**", operator.pow),
}
_NUMERIC = ("+", "-", "*", "/", "//", "%", "**")
_BUILTINS: Mapping[str, Callable[..., Any]] = {
    "int": int, "float": float, "bool": bool, "str": str, "abs": abs, "min": min, "max": max, "round": round,
    "math.sqrt": lambda value: value**0.5, "math.ceil": lambda value: -int(-value // 1),
    "math.floor": lambda value: int(value // 1),
}  # fmt: skip


def symbol_of(node: cst.CSTNode) -> str:
    """How an operator is written; "?" for one that is not computed."""
    return _BINARY[type(node)][0] if type(node) in _BINARY else "?"


def fold(node: cst.CSTNode, left: Value, right: Value) -> Value | None:
    """What an operator gives for two values; None where that is not known."""
    if isinstance(node, cst.BitOr | cst.BitOrAssign) and isinstance(left, Table) and isinstance(right, Table):
        return Table({**left.items, **right.items}, left.open or right.open)
    if type(node) not in _BINARY:
        return None
    symbol, compute = _BINARY[type(node)]
    if symbol in ("is", "is not", "==", "!=") and (_is_none(left) or _is_none(right)):
        return _compared_with_none(symbol, left, right)
    if symbol == "+" and isinstance(left, Seq) and isinstance(right, Seq):
        return Seq(left.items + right.items)
    first, second = plain(left), plain(right)
    if first is UNKNOWN or second is UNKNOWN:
        return None
    if symbol in _NUMERIC and not _are_small_numbers(symbol, first, second):
        return None
    try:
        return Known(compute(first, second))
    except (TypeError, ValueError, ArithmeticError):
        return None


def _is_none(value: Value) -> bool:
    return isinstance(value, Known) and value.value is None


def _compared_with_none(symbol: str, left: Value, right: Value) -> Value | None:
    other = right if _is_none(left) else left
    if isinstance(other, Known):
        same = other.value is None
    elif isinstance(other, Made | Ref | Table | Seq | Function | Class | Instance):
        same = False
    else:
        return None
    return Known(same is (symbol in ("is", "==")))


def _are_small_numbers(symbol: str, left: Any, right: Any) -> bool:
    if not all(isinstance(each, int | float) and abs(each) < LARGEST for each in (left, right)):
        return False
    return symbol != "**" or abs(right) <= 64


def computed(name: str, args: Sequence[Value]) -> Value | None:
    """What a function of Python gives for known arguments; None where that is not known."""
    values = [plain(arg) for arg in args]
    if name not in _BUILTINS or UNKNOWN in values or not values:
        return None
    try:
        return Known(_BUILTINS[name](*values))
    except (TypeError, ValueError, ArithmeticError):
        return None


def truth(value: Value) -> bool | None:
    """Whether a value counts as true; None where that is not known."""
    match value:
        case Known(value=constant):
            return bool(constant)
        case Table(items=items, open=None):
            return bool(items)
        case Seq(items=items) if not any(isinstance(item, Spread | Item) for item in items):
            return bool(items)
        case Function() | Class() | Instance():
            return True
        case Choice(yes=yes, no=no):
            first, second = truth(yes), truth(no)
            return first if first is second else None
        case _:
            return None


def merged(test: Value, yes: Value, no: Value) -> Value:
    """The value of a name that one way or the other through the code has set."""
    if yes is no:
        return yes
    first, second = plain(yes), plain(no)
    if first is not UNKNOWN and type(first) is type(second) and first == second:
        return yes
    if torch_name(yes) and torch_name(yes) == torch_name(no):
        return yes
    if isinstance(yes, Table) and isinstance(no, Table):
        keys = [*yes.items, *(key for key in no.items if key not in yes.items)]
        items = {key: merged(test, yes.items.get(key, ABSENT), no.items.get(key, ABSENT)) for key in keys}
        return Table(items, yes.open or no.open)
    if isinstance(yes, Seq) and isinstance(no, Seq):
        # A list to which only one way has added something.
        longer, shorter = (yes, no) if len(yes.items) >= len(no.items) else (no, yes)
        if all(a is b for a, b in zip(longer.items, shorter.items, strict=False)):
            return longer
    if _size(yes) + _size(no) > _MOST_CHOICES:
        return Opaque("one of many values")
    return Choice(test, yes, no)


def _size(value: Value) -> int:
    return _size(value.yes) + _size(value.no) if isinstance(value, Choice) else 1


def item_of(value: Value) -> Value:
    """What a loop over a value takes its items from, without what hands them on."""
    while True:
        match value:
            case Made(function=Ref(name=name), args=(first, *_)) if name.rpartition(".")[2] in _HANDED_ON:
                value = first
            case _:
                return value


_HANDED_ON = ("list", "tuple", "reversed", "iter", "sorted", "set", "tqdm", "trange")


def unpacked(value: Value, count: int) -> list[Value]:
    """The parts of a value that `count` names take."""
    match value:
        case Seq(items=items) if len(items) == count and not any(isinstance(i, Spread) for i in items):
            return list(items)
        case Known(value=tuple() | list() as items) if len(items) == count:
            return [Known(item) for item in items]
        case Item(of=of, tests=tests) if count == 2:
            pair = _pair(item_of(of))
            if pair is not None:
                return [Opaque("index"), Item(pair, tests)]
        case Item(of=Made(function=Ref(name="zip"), args=args), tests=tests) if len(args) == count:
            return [Item(arg, tests) for arg in args]
        case Choice(test=test, yes=yes, no=no):
            pairs = zip(unpacked(yes, count), unpacked(no, count), strict=True)
            return [merged(test, first, second) for first, second in pairs]
        case _:
            pass
    return [Item(value) for _ in range(count)]


def _pair(of: Value) -> Value | None:
    """What the second one of each pair is an item of."""
    match of:
        case Made(function=Ref(name="enumerate"), args=(first, *_)):
            return item_of(first)
        case Made(function=Attr(name="items" | "named_modules" | "named_children" | "named_parameters")):
            return of
        case _:
            return None
