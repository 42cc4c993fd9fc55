"""Changes along tangents of which some are not there."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.dtypes import float0

from thiele.slopes import change, is_still, moving


def still(x):
    return SymbolicZero(jax.typeof(jnp.asarray(x)).to_tangent_aval())


ARGUMENTS = {"a": jnp.array([1.0, 2.0]), "b": jnp.array(3.0), "label": jnp.array([1, 2])}
TANGENTS = {"a": jnp.array([0.5, -1.0]), "b": still(3.0), "label": np.zeros(2, float0)}


def test_the_change_is_a_sum_over_what_moves():
    slopes = {"a": jnp.array([10.0, 1.0]), "b": jnp.array(jnp.nan), "label": jnp.array([jnp.nan, jnp.nan])}
    np.testing.assert_allclose(change(slopes, TANGENTS), 10.0 * 0.5 - 1.0)


def test_nothing_moves_by_nothing():
    assert is_still(still(1.0))
    assert change({"b": jnp.array(2.0)}, {"b": still(3.0)}) == 0.0


def test_what_moves_is_put_back_in_its_place():
    found, tangents, whole = moving(ARGUMENTS, TANGENTS)
    assert [x.shape for x in found] == [x.shape for x in tangents] == [(2,)]
    replaced = whole([jnp.array([7.0, 8.0])])
    np.testing.assert_array_equal(replaced["a"], [7.0, 8.0])
    assert replaced["b"] is ARGUMENTS["b"]
    assert replaced["label"] is ARGUMENTS["label"]
