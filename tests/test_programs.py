"""Few data are compiled quickly, many thoroughly, and a caller's own program decides for itself."""

import gc
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thiele import programs
from thiele.series import Series
from thiele.tied import Tied


@pytest.fixture
def chosen(monkeypatch):
    """The options of every program that is run."""
    options, plain = [], eqx.filter_jit

    def noting(function, **given):
        run = plain(function, **given)
        return lambda *args, **kwargs: options.append(given) or run(*args, **kwargs)

    monkeypatch.setattr(programs.eqx, "filter_jit", noting)
    return options


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="elsewhere every program is compiled thoroughly")
def test_the_size_of_the_arguments_decides(chosen):
    total = programs.compiled(lambda x, by: by * jnp.sum(x["here"]))
    few, many = np.ones(programs.FEW - 1), np.ones(programs.FEW)
    assert total({"here": few}, 2.0) == 2.0 * (programs.FEW - 1)
    assert total({"here": many}, 2.0) == 2.0 * programs.FEW
    assert chosen == [{"compiler_options": programs.QUICKLY}, {"compiler_options": programs.LEAN}]


class Tiles(eqx.Module):
    tiled: ClassVar[bool] = True
    x: np.ndarray


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="elsewhere every program is compiled thoroughly")
def test_many_data_in_tiles_have_options_of_their_own(chosen):
    total = programs.compiled(lambda data: jnp.sum(data.x))
    assert total(Tiles(np.ones(programs.FEW + 1))) == programs.FEW + 1
    assert total(Tiles(np.ones(3))) == 3
    assert chosen == [{"compiler_options": programs.TILED}, {"compiler_options": programs.QUICKLY}]
    assert Tied.tiled
    assert not hasattr(Series, "tiled")


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="elsewhere every program is compiled thoroughly")
def test_a_program_that_runs_often_is_optimised_however_few_the_data(chosen):
    assert programs.optimised(lambda x: x + 1.0)(2.0) == 3.0
    assert chosen == [{"compiler_options": programs.FEW_THREADS}]


def test_an_option_that_the_compiler_does_not_have_is_left_out(chosen):
    options = {"xla_no_such_option": True, **programs.LEAN}
    assert programs.compiled(lambda x: x + 1.0, for_few=options)(2.0) == 3.0
    assert not programs.known("xla_no_such_option", True)
    assert all("xla_no_such_option" not in given.get("compiler_options", {}) for given in chosen)


def test_inside_a_program_of_the_caller_its_options_count(chosen):
    square = programs.compiled(lambda x: x**2)
    assert jax.jit(square)(3.0) == 9.0
    assert jax.jit(lambda: square(np.float32(3.0)))() == 9.0  # nothing traced goes in, and yet it is traced
    assert jax.grad(square)(3.0) == 6.0
    np.testing.assert_array_equal(jax.vmap(square)(jnp.arange(3.0)), [0.0, 1.0, 4.0])
    assert {} in chosen
    assert {"compiler_options": programs.QUICKLY} not in chosen


def test_garbage_is_seldom_looked_for_while_a_program_is_called_and_as_before_afterwards():
    seen, before = [], gc.get_threshold()

    @programs.compiled
    def look(x):
        seen.append(gc.get_threshold())
        return x

    @programs.compiled
    def fail(x):
        raise ValueError

    look(jnp.ones(3))
    with pytest.raises(ValueError):  # noqa: PT011 - its own
        fail(jnp.ones(3))
    assert seen[0] == (programs.BETWEEN_COLLECTIONS, *before[1:])
    assert gc.get_threshold() == before
