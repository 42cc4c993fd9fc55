"""The figures of docs/kernels.md: state dimensions, the truncation of Periodic, the errors of RBF."""

from __future__ import annotations

import numpy as np

import thiele as th

SHOWN = [
    th.Matern12(), th.Matern32(), th.Matern52(), th.Matern72(), th.Constant(), th.Cosine(), th.Periodic(),
    th.QuasiPeriodic(), th.Subband(), th.SHO(), th.Wiener(), th.IntegratedWiener(), th.RBF(),
]  # fmt: skip


def main() -> None:
    """Print them."""
    print("state dimension with default arguments")
    for kernel in SHOWN:
        print(f"  {type(kernel).__name__:<17}{kernel.sde().dim}")
    print("Periodic: harmonics chosen for a lengthscale, and the error of k(0) relative to the variance")
    for lengthscale in (0.3, 0.5, 1.0, 2.0, 4.0):
        kernel = th.Periodic(lengthscale=lengthscale)
        print(f"  {lengthscale:<5}{kernel.harmonics:>3}  {float(kernel.truncation_error()):.1e}")
    print("RBF: order, largest |k(tau) - exp(-tau^2/2)| found on a grid of 200001 lags up to 40, and the stated bound")
    tau = np.linspace(0.0, 40.0, 200_001)
    for order in range(1, 9):
        kernel = th.RBF(order=order)
        error = np.max(np.abs(np.asarray(kernel(tau, 0.0)) - np.exp(-0.5 * tau**2)))
        bound = float(kernel.approximation_error())
        assert error <= bound * 1.05, order
        print(f"  {order}  {error:.2e}  {bound:.1e}")


if __name__ == "__main__":
    main()
