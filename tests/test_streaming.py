"""More data for a fit: the same as all of them at once."""

import numpy as np
import pytest

import thiele as th

T = np.arange(40.0)
Y = np.sin(T / 4.0)
COUNTS = np.round(np.exp(1.0 + Y))
LATER = np.array([44.0, 41.0, 2.5])


def test_an_update_is_conditioning_on_everything():
    model = th.GP(th.Matern32(1.0, 4.0), th.Gaussian(0.1), mean=0.2)
    y = np.where(T == 3.0, np.nan, Y)
    order = np.random.default_rng(0).permutation(T.size)
    found = model.condition(T[order], y[order]).update(LATER, [0.1, np.nan, 0.5])
    expected = model.condition(np.append(T, LATER), np.append(y, [0.1, np.nan, 0.5]))
    np.testing.assert_allclose(found.predict([2.2, 45.0]).mean, expected.predict([2.2, 45.0]).mean, rtol=1e-10)
    assert found.objective == pytest.approx(expected.objective)
    np.testing.assert_array_equal(found.predict().times, np.append(T[order], LATER))


def test_what_was_learnt_stays_and_covariates_are_asked_for():
    fit = th.GP(th.Matern32(), th.Poisson()).fit(T, COUNTS, exposure=np.ones(T.size), max_steps=2)
    with pytest.raises(ValueError, match=r"those of the data that were fitted .`exposure`."):
        fit.update([41.0], [3.0])
    found = fit.update([41.0], [3.0], exposure=2.0)
    assert repr(found.kernel) == repr(fit.kernel)
    assert found.learnt is fit.learnt
    assert found.data.covariates["exposure"][-1] == 2.0
    with pytest.raises(ValueError, match="integer"):
        fit.update([41.0], [3.5], exposure=1.0)


def test_dates_go_on_with_dates_and_durations_stay():
    days = np.datetime64("2020-01-01") + np.arange(40)
    fit = th.GP(th.Matern32(1.0, "4 days"), th.Gaussian(0.1), mean=0.2).condition(days, Y)
    found = fit.update(np.array(["2020-02-15"], dtype="datetime64[D]"), [0.0])
    assert float(found.data.time[-1]) == 45.0
    assert found.clock == fit.clock
    with pytest.raises(TypeError, match="`t_more` must be dates"):
        fit.update([46.0], [0.0])
    with pytest.raises(ValueError, match="same length"):
        fit.update(days[:2], [0.0])


@pytest.mark.slow
def test_inducing_times_reach_as_far_as_the_data():
    fit = th.GP(th.Matern32(1.0, 4.0), th.Gaussian(0.1), mean=0.2, inducing=14).condition(T, Y)
    found = fit.update([50.0, -4.0], [0.0, 0.1])
    np.testing.assert_allclose(np.diff(found.inducing), 3.0)
    assert found.inducing[0] <= -4.0
    assert found.inducing[-1] >= 50.0
