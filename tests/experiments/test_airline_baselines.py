"""Rates without a model, against scipy and by hand."""

import numpy as np
from scipy import stats

from experiments.airline_baselines import BANDWIDTHS, nlpd, scores, smoothed
from experiments.tasks import Split

RNG = np.random.default_rng(0)
Y = RNG.poisson(0.7, 400).astype(float)
ROWS = Split(np.arange(0, 400, 2), np.arange(1, 400, 2))


def test_the_score_is_that_of_poisson_counts():
    rate = RNG.uniform(0.2, 2.0, Y.size)
    np.testing.assert_allclose(nlpd(Y, rate), -np.mean(stats.poisson(rate).logpmf(Y)), rtol=1e-12)


def test_a_rate_is_smoothed_from_the_days_that_train_alone():
    changed = Y.copy()
    changed[ROWS.test] += 100.0
    np.testing.assert_array_equal(smoothed(Y, ROWS.train, 30), smoothed(changed, ROWS.train, 30))
    np.testing.assert_allclose(smoothed(np.full(400, 3.0), ROWS.train, 30), 3.0, rtol=1e-12)


def test_every_estimate_is_scored_on_every_fold():
    found = scores(Y, [ROWS, ROWS])
    assert list(found) == ["constant", *(f"{days} days" for days in BANDWIDTHS)]
    constant = nlpd(Y[ROWS.test], np.full(200, np.mean(Y[ROWS.train])))
    assert found["constant"] == [constant, constant]
