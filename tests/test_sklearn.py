"""scikit-learn habits: its own checks, pipelines, cross-validation, grid search, pickles."""

import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import thiele as th
from thiele.sklearn import GPClassifier, GPRegressor

RNG = np.random.default_rng(0)
T = np.linspace(0.0, 20.0, 80)
Y = np.sin(T) + 0.1 * RNG.standard_normal(80)
X = T[:, None]
HELD = GPRegressor(th.Matern52(1.0, 2.0), th.Gaussian(0.01), mean=0.0, learn=False)


def failures(estimator):
    """The names of scikit-learn's checks that do not pass; one is skipped where its optional libraries are missing."""
    found = check_estimator(estimator, on_fail=None, on_skip=None)
    assert len(found) > 45
    return {result["check_name"] for result in found if result["status"] not in ("passed", "skipped")}


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("estimator", [GPRegressor(column=0, max_steps=5), GPClassifier(column=0, learn=False)])
def test_all_checks_of_scikit_learn_pass(estimator):
    # They send several columns, so the one of the times is stated.
    assert failures(estimator) == set()


def test_a_regressor_is_the_model_that_it_stands_for():
    fit = th.GP(th.Matern52(1.0, 2.0), th.Gaussian(0.01), mean=0.0).condition(T, Y)
    found = HELD.fit(X, Y)
    new = np.array([[3.3], [25.0]])
    mean, sd = found.predict(new, return_std=True)
    p = fit.predict(new[:, 0])
    np.testing.assert_allclose(mean, p.y_mean)
    np.testing.assert_allclose(sd, np.sqrt(p.y_var))
    np.testing.assert_allclose(found.predict_interval(new, 0.9), np.stack(p.interval(0.9), axis=1))
    assert found.score(X, Y) > 0.98


def test_learning_is_the_default_and_counts_its_steps():
    found = GPRegressor(max_steps=2, mean=0.0).fit(X, Y)
    assert found.n_iter_ == 2
    assert found.fit_.learnt is not None


def test_pipelines_cross_validation_and_grid_search():
    pipeline = make_pipeline(
        StandardScaler(), GPRegressor(th.Matern52(1.0, 0.3), th.Gaussian(0.01), mean=0.0, learn=False)
    )
    assert pipeline.fit(X, Y).score(X, Y) > 0.98
    scores = cross_val_score(HELD, X, Y, cv=TimeSeriesSplit(2, test_size=4))
    assert scores.shape == (2,)
    grid = {"kernel": [th.Matern52(1.0, 2.0), th.Matern52(1.0, 0.01)]}
    shuffled = RNG.permutation(80)
    search = GridSearchCV(HELD, grid, cv=4, scoring="neg_mean_squared_error").fit(X[shuffled], Y[shuffled])
    assert float(search.best_params_["kernel"].lengthscale) == 2.0


def test_a_pickle_keeps_double_precision():
    found = HELD.fit(X, Y)
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.predict(X), found.predict(X))
    assert again.fit_.posterior.states.m.dtype == np.float64


@pytest.mark.slow
def test_classes_of_any_type_have_probabilities():
    labels = np.where(np.sin(T) > 0.0, "up", "down")
    found = GPClassifier(th.Matern52(4.0, 2.0), learn=False, mean=0.0).fit(X, labels)
    assert list(found.classes_) == ["down", "up"]
    shares = found.predict_proba(X)
    np.testing.assert_allclose(np.sum(shares, axis=1), 1.0)
    assert found.score(X, labels) > 0.95


@pytest.mark.slow
def test_three_classes_have_three_latent_functions():
    labels = np.digitize(np.sin(T), [-0.3, 0.3])
    # The class in the middle holds for 0.6 units of time at a stretch: a lengthscale of 2 would smooth it away.
    found = GPClassifier(th.Matern52(4.0, 1.0), learn=False).fit(X, labels)
    assert found.fit_.kernel.latents == 3
    assert found.score(X, labels) > 0.9
    np.testing.assert_allclose(np.sum(found.predict_proba(X), axis=1), 1.0)


def test_columns_that_are_not_the_time_are_never_left_out_in_silence():
    two = np.stack([RNG.standard_normal(80), T], axis=1)
    with pytest.raises(ValueError, match="`X` must have one column, the times, got 2"):
        GPRegressor().fit(two, Y)
    with pytest.raises(ValueError, match="`column` must be the place of a column"):
        GPRegressor(column=2).fit(two, Y)
    stated = GPRegressor(th.Matern52(1.0, 2.0), th.Gaussian(0.01), mean=0.0, learn=False, column=1).fit(two, Y)
    np.testing.assert_allclose(stated.predict(two), HELD.fit(X, Y).predict(X))
    with pytest.raises(ValueError, match="at least two classes"):
        GPClassifier().fit(X, np.ones(80))
