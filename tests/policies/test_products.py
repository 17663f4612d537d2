"""Matrix products: the same from either library, with the same gradients."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from wanderlust.policies.local import products
from wanderlust.policies.local.products import missing_rows, product, projected


@pytest.fixture(autouse=True)
def _onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """On any processor: it is slower on some, and as right."""
    monkeypatch.setattr(products, "uses_onednn", lambda: True)
    monkeypatch.setattr(products, "MIN_MULTIPLICATIONS", 1)


@pytest.mark.parametrize("shape", [(1, 24), (7, 24), (64, 24), (65, 24), (3, 31, 24), (600, 24)])
def test_a_product_is_that_of_a_linear_layer(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x, weight, by = torch.randn(shape), torch.randn(40, 24), torch.randn(*shape[:-1], 40)
    with torch.no_grad():
        assert product(x, weight).shape == by.shape
    found = []
    for way in (product, functional.linear):
        inputs = [x.clone().requires_grad_(), weight.clone().requires_grad_()]
        out = way(*inputs)
        found.append((out, *torch.autograd.grad((out * by).sum(), inputs)))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-4)


def test_frozen_weights_get_no_gradient() -> None:
    x, weight = torch.randn(9, 24, requires_grad=True), torch.randn(40, 24)
    product(x, weight).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, weight.sum(0).expand(9, -1))


def test_numbers_of_rows_are_few() -> None:
    assert len({n + missing_rows(n) for n in range(1, 2049)}) < 50
    assert all(n + missing_rows(n) < 1.1 * n + 32 for n in range(1, 2049))


def test_a_layer_that_is_more_than_a_matrix_computes_itself() -> None:
    x = torch.randn(9, 24)
    plain, biased, hooked = (torch.nn.Linear(24, 40, bias=bias) for bias in (False, True, False))
    hooked.register_forward_hook(lambda *_: torch.zeros(9, 40))
    with torch.no_grad():
        for layer in (plain, biased, hooked):
            torch.testing.assert_close(projected(layer, x), layer(x))
