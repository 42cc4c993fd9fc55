r"""log E exp(l(f)), f ~ N(mean, var), of one latent value, wherever the mass is and however narrow; its derivatives.

    f = mean + √var (c + s g(u)),   c = argmax l(f) + log N(f; mean, var),   s² = 1/(1 + W),   W = −l″(c) ≥ 0,

in standard deviations, with even steps in u and g(u) = sinh(β u)/β, β² = 1 − s². Near c the nodes are a fraction of s
apart; further out their distance grows in proportion, up to 8 standard deviations beyond both the mean and c. So two
scales are resolved at once, the width s of a sharp likelihood and that of the Gaussian; where l says little the nodes
are even. The trapezoidal rule in u converges geometrically for a smooth integrand. Every other node is a rule too, and
as far as the two halves differ, squared, is about what their sum is wrong by: where that is too much, nodes are put
between.

Derivatives are moments under the tilted density π ∝ exp(l) N. Those in the mean are

    E l′,   E l″ + Var l′      or      (E f − mean)/var,   (Var f/var − 1)/var,

where the first two cancel if l says nearly all, and the others if it says little. Half of E (l″ + l′²) is the
derivative in the variance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jaxtyping import Array, Bool, Float

from thiele.hills import TAIL, Hill, find_hill, with_slopes
from thiele.slopes import all_still, is_still, written_out

# Nodes that are visited together, and by how much of a step those of each visit are moved: they lie between all before
# them, so that 1, 2 and 4 visits are a rule with even steps.
TOGETHER, BLOCK = 48, 8
SHIFTS = np.array([0.0, 1 / 2, 1 / 4, 3 / 4])
# By how much the two halves of a rule may differ: their sum is then wrong by about the square.
APART = 3e-5
# Nodes where derivatives of derivatives, and in other things than the moments, are taken.
FIXED = 64
# Of less than this share of the variance the likelihood leaves it says nearly all.
SHARP = 0.5
# β is no less: of a sinh of less nothing but rounding would be left.
LEAST_BEND = 1e-3


def standard_deviation(var: Float[Array, ""]) -> Float[Array, ""]:
    """√var with a finite derivative at var = 0 and no NaN below it; off by less than 1e-12 in double precision."""
    return jnp.sqrt(jnp.where(var >= 0.0, var, 0.0) + jnp.finfo(var.dtype).eps ** 1.5)


def log_tilted(
    log_fn: Callable[[Array], Array], mean: Float[Array, ""], var: Float[Array, ""], *, one_hill: bool = False
) -> Float[Array, ""]:
    """log E exp(log_fn(f)), f ~ N(mean, var); `one_hill`: `log_fn` is known to be concave."""
    # All that the function reads is an argument, so that it may be mapped over, and have a derivative.
    traced = jax.make_jaxpr(log_fn)(mean)
    held = lambda f, *constants: jaxpr_as_fun(ClosedJaxpr(traced.jaxpr, constants))(f)[0]  # noqa: E731
    return _value(Tilted(held, one_hill), mean, var, list(traced.consts))


class Tilted(NamedTuple):
    """What is integrated: a function of f and of constants, and whether it is known to be concave in f."""

    log_fn: Callable[..., Float[Array, ""]]
    one_hill: bool


Arguments = tuple[Float[Array, ""], Float[Array, ""], list[Any]]


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _value(of: Tilted, mean: Array, var: Array, constants: list[Any]) -> Array:
    return _moments(of, mean, var, constants, slopes=False).value


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _value_and_slope(of: Tilted, mean: Array, var: Array, constants: list[Any]) -> tuple[Array, Array]:
    return _moments(of, mean, var, constants)[:2]


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _all(of: Tilted, mean: Array, var: Array, constants: list[Any]) -> Moments:
    return _moments(of, mean, var, constants)


# Each derivative comes with what it is of: all that is asked for is found at once, whichever derivatives these are.


@partial(_value.defjvp, symbolic_zeros=True)
def _(of: Tilted, primals: Arguments, tangents: Arguments) -> tuple[Array, Array]:
    if not is_still(tangents[1]):
        found = _all(of, *primals)
    elif not is_still(tangents[0]):
        found = Moments(*_value_and_slope(of, *primals), jnp.zeros_like(primals[0]))
    else:
        found = Moments(_value(of, *primals), *jnp.zeros((2,), primals[0].dtype))
    return found.value, _change_of_value(of, found, primals, tangents)


@partial(_value_and_slope.defjvp, symbolic_zeros=True)
def _(of: Tilted, primals: Arguments, tangents: Arguments) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    found = _all(of, *primals)
    if all_still(tangents[1:]):
        change = found.curvature * tangents[0]
    else:
        change = jax.jvp(jax.grad(partial(at_fixed_nodes, of)), primals, written_out(tangents))[1]
    return found[:2], (_change_of_value(of, found, primals, tangents), change)


@partial(_all.defjvp, symbolic_zeros=True)
def _(of: Tilted, primals: Arguments, tangents: Arguments) -> tuple[Moments, Moments]:
    found, slope = _all(of, *primals), jax.grad(partial(at_fixed_nodes, of))
    # Of rules that keep their sites nobody asks for these, and the compiler leaves them out.
    changes = jax.jvp(lambda *args: (slope(*args), jax.grad(slope)(*args)), primals, written_out(tangents))[1]
    return found, Moments(_change_of_value(of, found, primals, tangents), *changes)


def _change_of_value(of: Tilted, found: Moments, primals: Arguments, tangents: Arguments) -> Array:
    mean, var, constants = primals
    by_mean, by_var, by_constants = tangents
    change = jnp.zeros_like(mean)
    if not is_still(by_mean):
        change = change + found.slope * by_mean
    if not is_still(by_var):
        change = change + 0.5 * (found.curvature + jnp.square(found.slope)) * by_var
    if not all_still(by_constants):
        plain = partial(at_fixed_nodes, of, mean, var)
        change = change + jax.jvp(plain, (constants,), (written_out(by_constants),))[1]
    return change


# Nodes.


class Nodes(NamedTuple):
    """Where a rule begins and ends in u, and β."""

    left: Float[Array, ""]
    right: Float[Array, ""]
    bend: Float[Array, ""]

    def at(self, share: Array, *more: Array) -> tuple[Array, Array]:
        """g and its slope, where these shares of the way are done, added up: exponentials are multiplied."""
        way = self.bend * (self.left + self.right)
        rise = jnp.exp(way * share - self.bend * self.left)
        for part in more:
            rise = rise * jnp.exp(way * part)
        fall = 1.0 / rise
        return 0.5 * (rise - fall) / self.bend, 0.5 * (rise + fall)


def _nodes(hill: Hill) -> Nodes:
    bend = jnp.sqrt(1.0 - jnp.square(hill.width) + LEAST_BEND**2)
    left, right = (
        jnp.arcsinh(bend * (TAIL + jnp.maximum(beyond, 0.0)) / hill.width) / bend for beyond in (hill.top, -hill.top)
    )
    return Nodes(left, right, bend)


def at_fixed_nodes(of: Tilted, mean: Array, var: Array, constants: list[Any]) -> Array:
    """The same number as a plain sum, differentiable in everything: in standard deviations the nodes stay."""
    held = lax.stop_gradient((mean, standard_deviation(var), constants))
    hill = find_hill(*of, *held)
    nodes = _nodes(hill)
    g, stretch = nodes.at(jnp.linspace(0.0, 1.0, FIXED, dtype=var.dtype))
    z = hill.top + hill.width * g
    weight = stretch * hill.width * (nodes.left + nodes.right) / ((FIXED - 1) * math.sqrt(2.0 * math.pi))
    log_weights = lax.stop_gradient(jnp.log(weight) - 0.5 * jnp.square(z))
    f = mean + standard_deviation(var) * lax.stop_gradient(z)
    return jax.nn.logsumexp(jax.vmap(lambda f: of.log_fn(f, *constants))(f) + log_weights)


# Sums over nodes.


class Sums(NamedTuple):
    """Sums over nodes of the tilted density w times 1, g, g², l′ and l′² + l″."""

    mass: Array
    first: Array
    second: Array
    slope: Array
    curvature: Array


class Moments(NamedTuple):
    """log E exp(l), and its first two derivatives in the mean."""

    value: Float[Array, ""]
    slope: Float[Array, ""]
    curvature: Float[Array, ""]


def _moments(of: Tilted, mean: Array, var: Array, constants: list[Any], *, slopes: bool = True) -> Moments:
    """Of one datum; of all data along one axis together, with theirs as the last: loops over it are vectors. Without
    `slopes` only the value is what it is called.
    """

    @custom_vmap
    def of_one(mean: Array, var: Array, constants: list[Any]) -> Moments:
        lifted = jax.tree.map(lambda x: x[None], (mean, var, constants))
        return jax.tree.map(lambda x: x[0], _of_all(of, *lifted, [0] * len(constants), slopes))

    @of_one.def_vmap
    def _(size: int, mapped: Any, mean: Array, var: Array, constants: list[Any]) -> tuple[Moments, Moments]:
        mean, var = (jnp.broadcast_to(x, size) for x in (mean, var))
        along = [0 if one else None for one in mapped[2]]
        return _of_all(of, mean, var, constants, along, slopes), Moments(True, True, True)

    return of_one(mean, var, constants)


def _of_all(
    of: Tilted,
    mean: Float[Array, " n"],
    var: Float[Array, " n"],
    constants: list[Any],
    along: list[int | None],
    slopes: bool,
) -> Moments:
    sd = standard_deviation(var)
    hill = jax.vmap(partial(find_hill, *of), in_axes=(0, 0, along))(mean, sd, constants)
    log_fn = jax.vmap(of.log_fn, in_axes=(0, *along))
    nodes, height = _nodes(hill), log_fn(mean + sd * hill.top, *constants) - 0.5 * jnp.square(hill.top)
    height = jnp.where(jnp.isfinite(height), height, 0.0)
    most = 0.9 * float(np.log(jnp.finfo(sd.dtype).max))

    def at_each(f: Array, *constants: Any) -> tuple[Array, Array, Array]:
        if slopes:
            return with_slopes(lambda f: of.log_fn(f, *constants), f)
        return of.log_fn(f, *constants), jnp.zeros_like(f), jnp.zeros_like(f)

    at_all = jax.vmap(at_each, (0, *along))

    def at_one(g: Float[Array, " n"], stretch: Float[Array, " n"]) -> Sums:
        z = hill.top + hill.width * g
        log, slope, curvature = at_all(mean + sd * z, *constants)
        # Where no top was found w may be too large for its type.
        w = stretch * jnp.exp(jnp.minimum(log - 0.5 * jnp.square(z) - height, most))
        slope, curvature = (jnp.where(w > 0.0, x, 0.0) for x in (slope, curvature))
        return Sums(w, w * g, w * jnp.square(g), w * slope, w * (jnp.square(slope) + curvature))

    def visit(shift: Array) -> Sums:
        """The sums over every other node, from the first and from the second on."""
        blocks = (jnp.arange(0, TOGETHER, BLOCK, dtype=sd.dtype) + shift) / TOGETHER
        inside = jnp.arange(BLOCK, dtype=sd.dtype).reshape(-1, 2).T / TOGETHER
        found = jax.vmap(jax.vmap(jax.vmap(at_one)))(*nodes.at(blocks[:, None, None], inside[:, None, :, None]))
        return jax.tree.map(partial(jnp.sum, axis=(1, 2)), found)

    def apart(a: Sums, b: Sums) -> Bool[Array, ""]:
        """Whether two rules differ too much anywhere, in what is used of them."""
        both = jax.tree.map(jnp.add, a, b)
        sharp = _spread(hill, both) < SHARP
        scales = 1.0, 1.0, 1.0, jnp.where(sharp, 0.0, sd), jnp.where(sharp, 0.0, var)
        differences = [
            scale * jnp.abs(p - q) / (both.mass + scale * jnp.abs(p + q))
            for p, q, scale in zip(a, b, scales, strict=True)
        ]
        return jnp.any(jnp.stack(differences) > APART)

    def unfinished(state: tuple[Sums, Sums, Array, Array]) -> Array:
        return state[3] & (state[2] < len(SHIFTS))

    def more(state: tuple[Sums, Sums, Array, Array]) -> tuple[Sums, Sums, Array, Array]:
        old, new, visits, _ = state
        new = jax.tree.map(lambda x, y: x + y[0] + y[1], new, visit(jnp.asarray(SHIFTS, sd.dtype)[visits]))
        visits = visits + 1
        whole = (visits & (visits - 1)) == 0
        rough = ~whole | apart(old, new)
        old = jax.tree.map(lambda x, y: jnp.where(whole, x + y, x), old, new)
        return old, jax.tree.map(lambda x: jnp.where(whole, 0.0, x), new), visits, rough

    halves = visit(jnp.zeros((), sd.dtype))
    of_half = lambda k: jax.tree.map(lambda x: x[k], halves)  # noqa: E731
    start = jax.tree.map(lambda x: x[0] + x[1], halves), jax.tree.map(lambda _: jnp.zeros_like(sd), of_half(0))
    sums, _, visits, _ = lax.while_loop(unfinished, more, (*start, jnp.array(1), apart(of_half(0), of_half(1))))
    step = (nodes.left + nodes.right) / (TOGETHER * visits)
    value = height + jnp.log(sums.mass * hill.width * step / math.sqrt(2.0 * math.pi))
    first, _, slope, curvature = (x / sums.mass for x in sums[1:])
    spread = _spread(hill, sums)
    sharp = spread < SHARP
    return Moments(
        value,
        jnp.where(sharp, (hill.top + hill.width * first) / sd, slope),
        jnp.where(sharp, (spread - 1.0) / jnp.where(sharp, var, 1.0), curvature - jnp.square(slope)),
    )


def _spread(hill: Hill, sums: Sums) -> Array:
    """Var f / var."""
    first, second = sums.first / sums.mass, sums.second / sums.mass
    return jnp.square(hill.width) * (second - jnp.square(first))
