"""Kernels in space-time: against dense GPs with the product kernel, and against dense inter-domain algebra."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thiele as th
from tests.likelihoods.registry import jit
from thiele import dense_sites
from thiele import dense_sparse as dense
from thiele.approximate import setting
from thiele.energies import energy, observed
from thiele.inference import initial_sites
from thiele.likelihoods import Shifted
from thiele.parameters import constrain, unconstrain

RNG = np.random.default_rng(5)
STATIONS = RNG.normal(size=(4, 2))
TIMES = np.sort(RNG.uniform(0.0, 5.0, 7))
# Stations at common times, some of them absent: one to four data at each time.
ROWS = np.array([[t, *s] for t in TIMES for s in STATIONS])
X = RNG.permutation(ROWS[RNG.uniform(size=len(ROWS)) < 0.8])
F = np.sin(X[:, 0]) + 0.8 * X[:, 1]
NEW = np.column_stack([RNG.uniform(-1.0, 6.0, 6), RNG.normal(size=(6, 2))])
MEAN = 0.3
DATA = {
    "gaussian": (th.Gaussian(0.2), F + 0.4 * RNG.standard_normal(len(F))),
    "bernoulli": (th.Bernoulli(), (F + RNG.standard_normal(len(F)) > 0).astype(float)),
    "poisson": (th.Poisson(), RNG.poisson(np.exp(F)).astype(float)),
}
ON_STATIONS = th.SpaceTime(th.Matern32(1.3, 0.8), th.spatial.Matern52(lengthscale=[0.9, 1.4]))
# Fewer points than stations, away from them.
POINTS = np.array([[-0.5, 0.4], [0.6, -0.7], [0.9, 0.8]])
AWAY = th.SpaceTime(th.Matern32(1.3, 0.8), th.spatial.RBF(lengthscale=1.1), inducing=POINTS)
SUM = AWAY + th.SpaceTime(th.Matern52(0.7, 3.0), th.spatial.Matern32(lengthscale=2.0), inducing=POINTS[:2])
Z = np.array([0.4, 1.7, 3.1, 4.6])
RULES = {"cvi": th.CVI(), "ep": th.PowerEP(0.5), "pl": th.PL(), "eks": th.EKS(), "laplace": th.Laplace()}


def model(name, kernel=ON_STATIONS, **options):
    return th.GP(kernel, DATA[name][0], mean=MEAN, **options)


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


ON_THEM = np.unique(X[:, 0])


@pytest.mark.parametrize(
    ("name", "inducing"),
    [
        *((name, None) for name in DATA),
        ("poisson", ON_THEM),
        *(pytest.param(name, ON_THEM, marks=pytest.mark.slow) for name in ("gaussian", "bernoulli")),
    ],
)
def test_stations_are_exact(name, inducing):
    likelihood, y = DATA[name]
    fit = model(name, inducing=inducing).condition(X, y)

    @jit
    def truth(X, new):
        data, K = observed(y), dense_sites.gram(ON_STATIONS, X)
        shifted = Shifted(likelihood, jnp.asarray(MEAN))
        none = th.rules.Site(jnp.zeros((len(y), 1)), jnp.zeros((len(y), 1, 1)))
        sites = dense_sites.infer(th.CVI(), shifted, K, data, none, sweeps=150)
        mean, _, h, Lam = dense_sites.joint(K, data, sites)
        cross = ON_STATIONS(new[:, None], X[None])
        widened = jnp.linalg.inv(jnp.eye(len(y)) + K @ Lam)
        # K⁻¹ (cov − K) K⁻¹ = −(Λ − Λ cov Λ) = −Λ (I + K Λ)⁻¹
        var = ON_STATIONS(new, new) - jnp.einsum("qi,ij,qj->q", cross, Lam @ widened, cross)
        return dense_sites.energy(th.CVI(), shifted, K, data, sites), cross @ (h - Lam @ mean), var

    energy, mean, var = truth(jnp.asarray(X), jnp.asarray(NEW))
    p = fit.predict(NEW)
    np.testing.assert_allclose(fit.objective, energy, rtol=1e-9)
    # Gaussian sites are exact after one sweep; others stop within 1e-6 of where they converge to.
    tolerance = 1e-8 if name == "gaussian" else 1e-6
    np.testing.assert_allclose(p.mean, MEAN + mean, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(p.var, var, rtol=tolerance)
    assert fit.converged


# Likelihood, rule, kernel and whether data share sites; rules beyond the first take long.
CASES = [
    ("gaussian", "cvi", AWAY, True),
    ("poisson", "cvi", SUM, True),
    ("poisson", "cvi", SUM, False),
    ("bernoulli", "ep", AWAY, True),
    ("bernoulli", "ep", AWAY, False),
    *(
        pytest.param(name, rule, AWAY, tied, marks=pytest.mark.slow)
        for name, rule in [("gaussian", "ep"), ("bernoulli", "cvi"), *(("poisson", rule) for rule in RULES)]
        for tied in (True, False)
    ),
]


@pytest.mark.parametrize(("name", "rule", "kernel", "tied"), CASES)
def test_inducing_points_in_space_are_those_of_dense_algebra(name, rule, kernel, tied):
    likelihood, y = DATA[name]
    # A dense cavity for each datum is costly: a few data show the same.
    rows = np.argsort(X[:, 0], kind="stable")[: 9 if rule == "ep" and not tied else None]
    inputs, seen = X[rows], y[rows]
    fit = model(name, kernel, inducing=Z if tied else None, rule=RULES[rule]).condition(inputs, seen)

    @jit
    def truth(X, z):
        at = dense.features_in_space(kernel, z, X, observed(seen), tied)
        shifted = Shifted(likelihood, jnp.asarray(MEAN))
        sites = dense.infer(RULES[rule], shifted, at, at.empty(), sweeps=100, step=0.5)
        return dense.energy(RULES[rule], shifted, at, sites), dense.marginals(at, sites)

    energy, q = truth(jnp.asarray(inputs), jnp.asarray(Z if tied else np.unique(inputs[:, 0])))
    p = fit.predict(inputs)
    assert fit.converged
    # Sites are within 1e-6 of where they converge to; an energy that is not stationary there feels each of them.
    np.testing.assert_allclose(
        fit.objective, energy, rtol=1e-7, atol=0.0 if RULES[rule].stationary else 1e-6 * len(seen)
    )
    tolerance = 1e-8 if (name, rule) == ("gaussian", "cvi") else 1e-5
    np.testing.assert_allclose(p.mean, MEAN + q.mean[:, 0], rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(p.var, q.var[:, 0, 0], rtol=tolerance)


def test_inducing_values_on_a_grid_are_the_sparse_gp_of_the_textbooks():
    y = DATA["gaussian"][1]
    fit = model("gaussian", AWAY, inducing=th.Inducing(times=Z, of="values")).condition(X, y)
    grid = th.grid(Z, np.arange(len(POINTS)))
    U = np.column_stack([grid[:, 0], POINTS[grid[:, 1].astype(int)]])
    K, C = AWAY(U[:, None], U[None]) + 1e-10 * 1.3 * np.eye(len(U)), AWAY(X[:, None], U[None])
    low_rank = C @ np.linalg.solve(K, C.T)
    S, r = low_rank + 0.2 * np.eye(len(y)), y - MEAN
    bound = -0.5 * r @ np.linalg.solve(S, r) - 0.5 * np.linalg.slogdet(2 * np.pi * S)[1]
    bound -= 0.5 / 0.2 * np.sum(AWAY(X, X) - np.diag(low_rank))
    np.testing.assert_allclose(fit.objective, bound, rtol=1e-8)
    draws, p = fit.sample(NEW, 20_000), fit.predict(NEW)
    assert np.max(np.abs(draws.std(axis=0) / np.sqrt(p.var) - 1.0)) < 0.03


LEARNT = th.SpaceTime(
    th.Matern32(1.3, 0.8), th.spatial.Matern52(lengthscale=[0.9, 1.4]), th.spatial.Inducing(points=POINTS, learn=True)
)


# Tied power EP is left out: with several data in a segment its derivative is that with the sites held.
@pytest.mark.parametrize(
    ("rule", "tied"),
    [("cvi", True), *(pytest.param(rule, False, marks=pytest.mark.slow) for rule in ("cvi", "ep"))],
)
def test_gradients_in_all_hyperparameters_and_points_are_those_of_finite_differences(rule, tied):
    likelihood, y = DATA["bernoulli"]
    placed = th.GP(LEARNT.placed(X[:, 1:]), likelihood, rule=RULES[rule], inducing=Z if tied else None, mean=MEAN)
    value = jit(lambda v: constrain(placed, v).log_likelihood(X, y))
    start = unconstrain(placed)
    assert start.shape == (2 + 2 + 6,)
    slope = jax.jit(jax.grad(lambda v: constrain(placed, v).log_likelihood(X, y)))(start)
    step = 1e-4
    for i in (0, 1, 3, 4, 9):
        e = step * np.eye(len(start))[i]
        np.testing.assert_allclose(slope[i], (value(start + e) - value(start - e)) / (2 * step), rtol=1e-4, atol=1e-6)


def test_the_order_of_rows_and_of_stations_changes_nothing():
    y = DATA["poisson"][1]
    shuffled = RNG.permutation(len(X))
    p = model("poisson").condition(X, y).predict(NEW)
    q = model("poisson").condition(X[shuffled], y[shuffled]).predict(NEW)
    np.testing.assert_allclose(p.mean, q.mean, atol=1e-8)
    swapped = X[:, [0, 2, 1]]
    kernel = th.SpaceTime(th.Matern32(1.3, 0.8), th.spatial.Matern52(lengthscale=[1.4, 0.9]))
    r = model("poisson", kernel).condition(swapped, y).predict(NEW[:, [0, 2, 1]])
    np.testing.assert_allclose(p.mean, r.mean, atol=1e-8)
    np.testing.assert_allclose(p.var, r.var, atol=1e-8)


@pytest.mark.parametrize(
    "inducing", [pytest.param(None, marks=pytest.mark.slow), Z], ids=["a state at each time", "inducing times"]
)
def test_missing_values_are_as_if_their_rows_were_not_there(inducing):
    y = DATA["poisson"][1].copy()
    # Some values, and one whole time step.
    missing = np.zeros(len(y), bool)
    missing[[2, 9]] = True
    missing |= X[:, 0] == X[5, 0]
    y[missing] = np.nan
    kernel = AWAY
    holes = model("poisson", kernel, inducing=inducing).condition(X, y)
    without = model("poisson", kernel, inducing=inducing).condition(X[~missing], y[~missing])
    np.testing.assert_allclose(holes.objective, without.objective, rtol=1e-10)
    np.testing.assert_allclose(holes.predict(NEW).mean, without.predict(NEW).mean, atol=1e-8)
    np.testing.assert_array_equal(np.isnan(holes.loo()), missing)


def test_more_data_at_a_time_than_inducing_points_and_times_of_unequal_size():
    # Nine places at the first times, one at the others: some take their data as a sum, the states are shared out.
    places = RNG.normal(size=(9, 2))
    rows = [[t, *s] for t in TIMES[:2] for s in places] + [[t, *places[k]] for k, t in enumerate(TIMES[2:])]
    inputs = np.array(rows)
    y = RNG.poisson(np.exp(np.sin(inputs[:, 0]))).astype(float)
    many = np.array([[t, *s] for t in TIMES[:3] for s in places])
    counts = RNG.poisson(np.exp(np.sin(many[:, 0]))).astype(float)
    for x, values in [(inputs, y), (many, counts)]:
        fit = model("poisson", AWAY).condition(x, values)
        tied = model("poisson", AWAY, inducing=np.unique(x[:, 0])).condition(x, values)
        np.testing.assert_allclose(fit.objective, tied.objective, rtol=1e-9)
        np.testing.assert_allclose(fit.predict(NEW).var, tied.predict(NEW).var, rtol=1e-6)


@pytest.mark.parametrize(
    "inducing", [pytest.param(None, marks=pytest.mark.slow), Z], ids=["a state at each time", "inducing times"]
)
def test_joint_draws_have_the_moments_of_the_posterior(inducing):
    fit = model("gaussian", AWAY, inducing=inducing).condition(X, DATA["gaussian"][1])
    n = 20_000
    draws = fit.sample(NEW, n, key=2)
    p, sd = fit.predict(NEW), draws.std(axis=0)
    assert np.max(np.abs(draws.mean(axis=0) - p.mean) / sd) < 5.0 / np.sqrt(n)
    assert np.max(np.abs(sd**2 / p.var - 1.0)) < 5.0 * np.sqrt(2.0 / n)
    # Two places at one time: what the inducing points leave unsaid is correlated too.
    pair = np.array([[2.0, 0.1, 0.2], [2.0, 0.15, 0.25]])
    together = fit.sample(pair, n, key=3)
    assert np.corrcoef(together.T)[0, 1] > 0.9


def test_summands_have_their_own_posterior_and_add_up():
    kernel = AWAY + th.Matern32(0.5, 2.0)
    for inducing in (None, Z):
        fit = model("gaussian", kernel, inducing=inducing).condition(X, DATA["gaussian"][1])
        parts = fit.components(NEW)
        assert [type(part.kernel).__name__ for part in parts] == ["SpaceTime", "Matern32"]
        np.testing.assert_allclose(sum(part.mean for part in parts) + MEAN, fit.predict(NEW).mean, atol=1e-10)


def test_several_latents_in_space_are_stacked():
    y = DATA["gaussian"][1]
    kernel = th.Stack(AWAY, th.Matern32(0.4, 2.0))
    full = th.GP(kernel, th.HeteroscedasticGaussian(), mean=[0.2, -1.0]).condition(X, y)
    tied = th.GP(kernel, th.HeteroscedasticGaussian(), mean=[0.2, -1.0], inducing=np.unique(X[:, 0])).condition(X, y)
    p, q = full.predict(NEW), tied.predict(NEW)
    assert p.mean.shape == (6, 2)
    np.testing.assert_allclose(full.objective, tied.objective, rtol=1e-7)
    np.testing.assert_allclose(p.mean, q.mean, atol=1e-5)


def test_a_fit_learns_points_lengthscales_and_noise():
    rng = np.random.default_rng(0)
    x = np.column_stack([np.repeat(np.linspace(0, 6, 20), 6), rng.uniform(-2, 2, (120, 1))])
    y = 3.0 + np.sin(x[:, 0]) * np.cos(x[:, 1]) + 0.1 * rng.standard_normal(len(x))
    kernel = th.SpaceTime(th.Matern52(), th.spatial.Matern52(), inducing=th.spatial.Inducing(8, learn=True))
    fit = th.GP(kernel, th.Gaussian()).fit(x, y)
    assert fit.kernel.points().shape == (8, 1)
    assert 0.005 < float(fit.likelihood.variance) < 0.02
    grid = th.grid(np.linspace(0, 6, 5), np.linspace(-1.5, 1.5, 4))
    assert grid.shape == (20, 2)
    wanted = 3.0 + np.sin(grid[:, 0]) * np.cos(grid[:, 1])
    assert np.max(np.abs(fit.predict(grid).mean - wanted)) < 0.3


@pytest.mark.parametrize(
    "inducing", [pytest.param(None, marks=pytest.mark.slow), Z], ids=["a state at each time", "inducing times"]
)
def test_a_saved_fit_predicts_the_same(inducing, tmp_path):
    fit = model("poisson", inducing=inducing).condition(X, DATA["poisson"][1])
    loaded = th.load(fit.save(tmp_path / "fit.thiele"))
    np.testing.assert_allclose(loaded.predict(NEW).mean, fit.predict(NEW).mean, rtol=1e-12)
    with pytest.raises(ValueError, match="`forecast` is for models of time alone"):
        fit.forecast(3)


def test_enough_inducing_times_are_found_in_space_too():
    rng = np.random.default_rng(3)
    x = np.array([[t, *s] for t in np.linspace(0.0, 20.0, 60) for s in STATIONS])
    y = rng.poisson(np.exp(np.sin(x[:, 0] / 3.0))).astype(float)
    kernel = th.SpaceTime(th.Matern52(1.0, 8.0), th.spatial.Matern52(lengthscale=2.0))
    fit = th.GP(kernel, th.Poisson(), inducing="auto").condition(x, y)
    full = th.GP(kernel, th.Poisson()).condition(x, y)
    assert 3 <= len(fit.inducing) < 40
    assert 0.0 <= full.objective - fit.objective < 2e-3 * len(y)


def test_dates_and_columns_are_inputs_too():
    days = np.datetime64("2024-01-01") + (24 * X[:, 0]).astype(int) * np.timedelta64(1, "h")
    y = DATA["gaussian"][1]
    fit = model("gaussian").condition((days, X[:, 1], X[:, 2]), y)
    numbers = (days - days.min()) / np.timedelta64(1, "D")
    same = model("gaussian").condition(np.column_stack([numbers, X[:, 1:]]), y)
    np.testing.assert_allclose(fit.objective, same.objective, rtol=1e-12)
    assert fit.predict().mean.shape == (len(y),)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: model("gaussian").condition(X[:, 0], DATA["gaussian"][1]), r"`t` must have shape \(n, 1 \+ D\)"),
        (lambda: model("gaussian").condition(X[:, :2], DATA["gaussian"][1]), "`lengthscale` of Matern52"),
        (lambda: model("gaussian", AWAY).condition(X[:, :2], DATA["gaussian"][1]), "`inducing` of SpaceTime"),
        (lambda: model("gaussian", AWAY).condition(X * np.nan, DATA["gaussian"][1]), "must be finite"),
        (lambda: th.SpaceTime(th.Matern32(), th.Matern32()), "`space` of SpaceTime must be a kernel such as"),
        (lambda: th.SpaceTime(AWAY, th.spatial.RBF()), "`time` of SpaceTime must be a kernel of time alone"),
        (lambda: AWAY * th.Matern32(), "put the product or the factor into its `time`"),
        (lambda: th.SpaceTime(th.Matern32(), th.spatial.RBF(), inducing="many"), "`inducing` of SpaceTime"),
        (lambda: th.SpaceTime(th.Matern32(), th.spatial.RBF(), inducing=0), "`count` of spatial Inducing"),
        (lambda: th.spatial.RBF(lengthscale=np.ones((2, 2))), "`lengthscale` of RBF"),
        (lambda: th.SpaceTime(th.Matern32(), th.spatial.RBF()).sde(), "chosen when the model sees data"),
    ],
)
def test_bad_input_is_refused_by_name(call, words):
    with pytest.raises((TypeError, ValueError), match=words):
        call()


@pytest.mark.parametrize("rule", [th.CVI(), th.PowerEP(power=0.5)])
def test_the_energy_of_a_full_model_has_the_gradient_of_finite_differences(rule):
    """Where q follows the hyperparameters, as it does for plain gradients and for the rules that are not stationary."""
    rng = np.random.default_rng(0)
    x = np.column_stack([np.sort(rng.uniform(0.0, 5.0, 40)), rng.uniform(-1.0, 1.0, 40)])
    kernel = th.SpaceTime(th.Matern32(), th.spatial.Matern32(lengthscale=0.7), np.linspace(-1.0, 1.0, 4))
    with jax.enable_x64(True):
        model, data, _, _ = th.GP(kernel, th.Poisson(), rule=rule)._prepared(x, rng.poisson(1.5, 40).astype(float), {})
        data = jax.tree.map(jnp.asarray, data)
        sites = initial_sites(*setting(model, data))
        of = jax.jit(lambda v: energy(rule, *setting(constrain(model, v), data), sites))
        free, step = unconstrain(model), 1e-5
        quotients = [(of(free + step * e) - of(free - step * e)) / (2.0 * step) for e in np.eye(len(free))]
        np.testing.assert_allclose(jax.grad(of)(free), quotients, rtol=1e-6)
