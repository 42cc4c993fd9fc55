"""What a map shows is what was predicted."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

import thiele as th
from thiele.plot import plot_map

mpl.use("Agg")
RNG = np.random.default_rng(4)
X = np.column_stack([np.repeat(np.arange(6.0), 4), RNG.uniform(-1, 1, (24, 2))])
Y = X[:, 0] + X[:, 1]
KERNEL = th.SpaceTime(th.Matern32(1.0, 2.0), th.spatial.RBF(lengthscale=1.0), inducing=6)


@pytest.fixture(autouse=True)
def _no_figure_is_left():
    yield
    plt.close("all")


def test_two_coordinates_make_a_map_at_one_time():
    fit = th.GP(KERNEL, th.Gaussian(0.1)).condition(X, Y)
    ax = fit.plot(3.0, resolution=5)
    mesh = ax.collections[0]
    corner = fit.predict([[3.0, ax.get_xlim()[0], ax.get_ylim()[0]]]).y_mean
    np.testing.assert_allclose(mesh.get_array().ravel()[0], corner[0], rtol=1e-6)
    assert "at 3" in ax.get_title()
    assert len(ax.lines[0].get_xdata()) == 24


def test_one_coordinate_is_drawn_against_time_also_with_dates():
    days = np.datetime64("2024-03-01") + X[:, 0].astype(int) * np.timedelta64(1, "D")
    fit = th.GP(KERNEL, th.Gaussian(0.1)).condition((days, X[:, 1]), Y)
    ax = plot_map(fit, show="sd", resolution=4, observations=False)
    assert mpl.dates.num2date(ax.get_xlim()[1]).day == 6
    assert np.all(ax.collections[0].get_array() > 0)
    assert not ax.lines


def test_bad_input_is_refused_by_name():
    time = th.GP(th.Matern32(1.0, 2.0), th.Gaussian(0.1)).condition(X[:, 0], Y)
    with pytest.raises(ValueError, match="must be of a model in space"):
        plot_map(time)
    with pytest.raises(ValueError, match="`show` must be"):
        plot_map(th.GP(KERNEL, th.Gaussian(0.1)).condition(X, Y), show="all")
