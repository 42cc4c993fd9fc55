"""A model chosen for the data: the right kind of likelihood, trend and seasons, all said and all overridable."""

import numpy as np
import pytest

import thiele as th
from thiele.automatic import kind_of_values

RNG = np.random.default_rng(4)
T = np.arange(200.0)
RATE = np.exp(1.0 + np.sin(T / 15.0))
SMOOTH = np.sin(T / 15.0)

KINDS = {
    "Bernoulli": (RNG.uniform(size=200) < 0.3).astype(float),
    "Poisson": RNG.poisson(RATE).astype(float),
    "NegativeBinomial": RNG.poisson(RATE * RNG.gamma(1.0, 1.0, 200)).astype(float),
    "Gaussian": SMOOTH + 0.1 * RNG.standard_normal(200),
    "StudentT": SMOOTH + 0.1 * RNG.standard_t(1.5, 200),
    "Gamma": np.exp(SMOOTH) * RNG.gamma(1.0, 1.0, 200) + 1e-3,
    "Beta": RNG.beta(1.0, 2.0, 200),
    "LogNormal": np.round(200.0 * np.exp(0.1 * SMOOTH + 0.01 * RNG.standard_normal(200))),
}


@pytest.mark.parametrize("name", KINDS)
def test_the_kind_of_values_is_recognised(name):
    likelihood, why = kind_of_values(KINDS[name])
    assert type(likelihood).__name__ == name
    assert why


def test_gaussian_noise_is_hardly_ever_taken_for_something_else():
    wrong = sum(type(kind_of_values(RNG.standard_normal(150))[0]) is not th.Gaussian for _ in range(100))
    assert wrong <= 2


def test_a_season_is_not_taken_for_more_variance():
    days = np.datetime64("2024-01-01") + np.arange(100)
    week = np.tile([1.0, 1.2, 1.1, 1.0, 1.4, 0.4, 0.3], 15)[:100]
    assert isinstance(th.GP.auto(days, RNG.poisson(8.0 * week).astype(float)).likelihood, th.Poisson)
    mixed = RNG.poisson(8.0 * week * RNG.gamma(2.0, 0.5, 100)).astype(float)
    assert isinstance(th.GP.auto(days, mixed).likelihood, th.NegativeBinomial)


def test_given_trials_mean_a_binomial_and_exposure_is_used():
    assert isinstance(th.GP.auto(T, np.full(200, 3.0), trials=np.full(200, 10.0)).likelihood, th.Binomial)
    exposure = np.where(T < 100.0, 1.0, 100.0)
    counts = RNG.poisson(2.0 * exposure).astype(float)
    model = th.GP.auto(T, counts, exposure=exposure)
    assert isinstance(model.likelihood, th.Poisson)
    assert float(model.mean.value) == pytest.approx(np.log(2.0), abs=0.1)


def test_trend_and_seasons_make_the_kernel_and_the_notes_say_so():
    days = np.datetime64("2022-01-01") + np.arange(200)
    y = 0.1 * T + np.tile([0.0, 1.0, 3.0, 2.0, 0.0, -3.0, -3.0], 29)[:200] + 0.3 * RNG.standard_normal(200)
    model = th.GP.auto(days, y)
    assert [type(term).__name__ for term in model.kernel.terms] == ["IntegratedWiener", "Matern12", "QuasiPeriodic"]
    assert float(model.kernel.terms[2].period) == 7.0
    said = " / ".join(model.notes)
    for words in ("likelihood Gaussian", "a season of 7 days, by the calendar", "a trend that goes on"):
        assert words in said


def test_every_choice_can_be_stated():
    model = th.GP.auto(T, KINDS["Poisson"], likelihood=th.NegativeBinomial(), seasons=[12.0], inducing=20, mean=0.0)
    assert isinstance(model.likelihood, th.NegativeBinomial)
    assert float(model.kernel.terms[-1].period) == 12.0
    assert model.inducing.count == 20
    assert float(model.mean.value) == 0.0
    plain = th.GP.auto(T, KINDS["Gaussian"], seasons=[], rule=th.PowerEP())
    assert isinstance(plain.kernel, th.Matern32)
    assert isinstance(plain.rule, th.PowerEP)
    kept = th.Matern52(lengthscale=3.0)
    assert th.GP.auto(T, KINDS["Gaussian"], kernel=kept).kernel is kept
    with pytest.raises(ValueError, match="`seasons` must be left out"):
        th.GP.auto(T, KINDS["Gaussian"], kernel=kept, seasons=[7.0])
    with pytest.raises(ValueError, match="integer"):
        th.GP.auto(T, KINDS["Gaussian"], likelihood=th.Poisson())


def test_long_series_of_counts_get_inducing_times():
    t = np.arange(30_000.0)
    model = th.GP.auto(t, RNG.poisson(3.0, t.size).astype(float), seasons=[])
    assert model.inducing.count == "auto"


@pytest.mark.slow
def test_the_chosen_model_fits_and_its_summary_tells_what_was_chosen():
    y = KINDS["StudentT"]
    fit = th.GP.auto(T[:64], y[:64]).fit(T[:64], y[:64])
    assert fit.converged
    assert "chosen: likelihood StudentT" in str(fit.summary())
    inside = np.mean(np.abs(fit.predict().mean - SMOOTH[:64]) < 3.0 * np.sqrt(fit.predict().var))
    assert inside > 0.9


def test_words_never_cause_a_compilation():
    one, other = th.GP(th.Matern32(), notes=("a",)), th.GP(th.Matern32(), notes=("b",))
    assert hash(one.notes) == hash(other.notes)
    assert one.notes == other.notes
    assert list(one.notes) == ["a"]
