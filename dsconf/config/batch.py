"""The batch triangle: micro batch x accumulation x GPUs = train batch."""

from __future__ import annotations

from typing import NamedTuple

from dsconf.config.effective import Reader
from dsconf.document.node import UNKNOWN


class Triangle(NamedTuple):
    """The batch keys as DeepSpeed completes them: `total = micro * accumulation * world` holds or is the problem.

    A member is None where it can't be known.
    """

    total: float | None
    micro: float | None
    accumulation: float | None
    problem: object
    """"missing", "not-positive", "product", "indivisible", "zero" (a missing key rounded down to 0), None for a sound
    one, or UNKNOWN."""


def _number(value: object) -> float | None:
    """A number that can be reckoned with; JSON can also hold 1e999 and integers beyond any float."""
    return value if isinstance(value, int | float) and abs(value) < 2**63 else None


def data_parallel_world(read: Reader) -> object:
    """The world size by which DeepSpeed divides the batch, as `DeepSpeedConfig` finds it without an mpu.

    It is the whole world (tensor parallelism is not taken out), or with `sequence_parallel_size` alone the world over
    it (a float; since 0.17.0), or with both sizes `data_parallel_size`.
    """
    sequence = read.given("sequence_parallel_size")
    data = read.given("data_parallel_size")
    if sequence is not None and data is not None:
        return data if _number(data) else UNKNOWN
    world = read.context("world_size")
    if sequence is None or not isinstance(world, int) or not read.since("0.17.0"):
        return world
    size = _number(sequence)
    return world / size if size else UNKNOWN


def batch(read: Reader) -> object:
    """The batch triangle (`Triangle`), in the order of the branches of `DeepSpeedConfig`."""
    given = [
        read.written("train_batch_size"),
        read.written("train_micro_batch_size_per_gpu"),
        read.written("gradient_accumulation_steps"),
    ]
    total, micro, steps = (_number(value) for value in given)
    if any(value is not None and _number(value) is None for value in given):
        return UNKNOWN
    if total is None and micro is None:
        return Triangle(None, None, steps, "missing")
    if any(value is not None and value <= 0 for value in (total, micro, steps)):
        return Triangle(total, micro, steps, "not-positive")
    world = _number(read.fact("data_parallel_world"))
    if world is not None:
        return _complete(total, micro, steps, world)
    if read.given("sequence_parallel_size") is not None and read.since("0.17.0"):
        return UNKNOWN
    return _without_world(total, micro, steps)


def _complete(total: float | None, micro: float | None, steps: float | None, world: float) -> Triangle:
    written = total is not None and micro is not None and steps is not None
    if total is None:
        steps = 1 if steps is None else steps
        assert micro is not None
        return Triangle(micro * steps * world, micro, steps, None)
    if micro is not None and steps is None:
        steps = total // micro // world
    elif micro is None and steps is not None:
        micro = total // world // steps
    elif micro is None:
        steps, micro = 1, total // world
    assert micro is not None
    assert steps is not None
    sound = micro > 0 and steps > 0 and total == micro * steps * world
    rounded = "indivisible" if micro and steps else "zero"
    return Triangle(total, micro, steps, None if sound else "product" if written else rounded)


def _without_world(total: float | None, micro: float | None, steps: float | None) -> Triangle:
    """What holds for every world size: the written factors have to divide the total.

    Of fractions, which DeepSpeed takes too, rounding decides for each world size by itself.
    """
    if total is None:
        return Triangle(None, micro, 1 if steps is None else steps, None)
    factor = (micro or 1) * (steps or 1)
    whole = all(number is None or number == int(number) for number in (total, micro, steps))
    problem: object = UNKNOWN
    if whole and total % factor:
        problem = "product" if micro and steps else "zero" if total < factor else "indivisible"
    if micro is None and steps is None:
        steps = 1
    return Triangle(total, micro, steps, problem)


def _triangle(read: Reader) -> Triangle | None:
    triangle = read.fact("batch")
    return triangle if isinstance(triangle, Triangle) else None


def batch_problem(read: Reader) -> object:
    """What is wrong with the batch triangle: see `Triangle.problem`."""
    if (
        read.hint("consumer") == "trainer"
        and read.hint("training_args") is not None
        and read.hint("world_size")
    ):
        return None  # Trainer compares each key with its arguments first
    triangle = _triangle(read)
    return triangle.problem if triangle else UNKNOWN


def pinned_gpus(read: Reader) -> object:
    """The one number of GPUs for which all three batch keys hold; None where one is missing or the number is given."""
    triangle = _triangle(read)
    if (
        triangle is None
        or triangle.problem is not UNKNOWN
        or read.given("sequence_parallel_size") is not None
    ):
        return None
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    total, micro, steps = (_number(read.given(name)) for name in names)
    return _plain(total / (micro * steps)) if total and micro and steps else None


def total_batch(read: Reader) -> object:
    """Samples per optimizer step over all GPUs: written, or what DeepSpeed computes."""
    triangle = _triangle(read)
    return _known(triangle.total if triangle else read.given("train_batch_size"))


def accumulation_steps(read: Reader) -> object:
    """Micro batches per optimizer step: written, or what DeepSpeed computes."""
    triangle = _triangle(read)
    return _known(triangle.accumulation if triangle else read.given("gradient_accumulation_steps"))


def micro_batch(read: Reader) -> object:
    """Samples per GPU and micro batch: written, or what DeepSpeed computes."""
    triangle = _triangle(read)
    return _known(triangle.micro if triangle else read.given("train_micro_batch_size_per_gpu"))


def _known(value: object) -> object:
    return UNKNOWN if _number(value) is None else value


def _batch_factors(read: Reader) -> list[tuple[float, str]] | None:
    """The factors that the total batch has to be a multiple of, each with its words."""
    names = {
        "train_micro_batch_size_per_gpu": "samples per GPU",
        "gradient_accumulation_steps": "accumulation steps",
    }
    factors = []
    for path, words in names.items():
        value = read.given(path)
        number = _number(value)
        if value is not None and number is None:
            return None
        if number is not None:
            factors.append((number, words))
    world = _number(read.fact("data_parallel_world"))
    if world is not None:
        factors.append((world, "GPU" if world == 1 else "GPUs"))
    return factors


def batch_unit(read: Reader) -> object:
    """The number that the total batch has to be a multiple of: the product of all factors that are known."""
    factors = _batch_factors(read)
    if factors is None:
        return UNKNOWN
    product: float = 1
    for factor, _ in factors:
        product *= factor
    return _plain(product)


def _plain(number: float) -> float:
    return int(number) if number == int(number) else number


def batch_unit_words(read: Reader) -> object:
    """`batch_unit` in words: "4 samples per GPU x 8 GPUs"."""
    factors = _batch_factors(read)
    if factors is None:
        return UNKNOWN
    return " x ".join(f"{_plain(number)} {words}" for number, words in factors) or "1 sample"


def batch_nearest(read: Reader) -> object:
    """The nearest multiples of `batch_unit` around the total batch, in words: "16 or 32"."""
    unit, total = read.fact("batch_unit"), _number(read.given("train_batch_size"))
    if not isinstance(unit, int) or unit <= 0 or total is None:
        return UNKNOWN
    below = int(total // unit) * unit
    return f"{below} or {below + unit}" if below > 0 else str(unit)
