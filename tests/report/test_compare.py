"""Comparisons claim what the values allow, and no more."""

import json
import random
from collections.abc import Callable

import pytest

from testbed.errors import PlaybookError, StoreError
from testbed.report.compare import compare, compare_many
from testbed.report.rules import fail_if
from testbed.store.reader import StoredRun

MakeRun = Callable[..., StoredRun]


def one(values: Callable[[random.Random, int], float]) -> Callable[..., dict[str, float | None]]:
    """Recoveries of one phase each."""
    return lambda rng, turn: {"detect": values(rng, turn)}


@pytest.fixture
def base(make_run: MakeRun) -> StoredRun:
    return make_run("base", trials=30)


def test_a_slower_run_is_called_slower(make_run: MakeRun, base: StoredRun) -> None:
    comparison = compare(base, make_run("new", trials=30, seed=2, slow=1.5))
    (recovery,) = comparison.find("recovery")
    assert recovery.ratio == pytest.approx(1.5, abs=0.2)
    assert recovery.ratio_low is not None
    assert recovery.ratio_high is not None
    assert 1 < recovery.ratio_low <= recovery.ratio <= recovery.ratio_high
    assert recovery.p_value is not None
    assert recovery.p_value < 0.001
    assert "the new median is longer" in recovery.claim
    assert comparison.differences == ()


def test_a_faster_run_is_called_faster(make_run: MakeRun, base: StoredRun) -> None:
    (recovery,) = compare(base, make_run("new", trials=30, slow=0.5)).find("recovery")
    assert "the new median is shorter (0.5×" in recovery.claim


def test_two_runs_of_one_distribution_allow_no_claim(make_run: MakeRun, base: StoredRun) -> None:
    (detect,) = compare(base, make_run("new", trials=30, seed=9)).find("detect")
    assert "no difference can be claimed" in detect.claim


def test_few_trials_allow_no_claim(make_run: MakeRun, base: StoredRun) -> None:
    (recovery,) = compare(base, make_run("new", trials=4, slow=3)).find("recovery")
    assert recovery.claim == (
        "recovery: nothing can be claimed from 28 and 3 trials; at least 6 each are needed."
    )
    assert recovery.p_value is recovery.ratio_low is None
    assert recovery.ratio is not None


def test_constant_values_of_virtual_time_are_compared_too(make_run: MakeRun) -> None:
    constant = make_run("a", phases=one(lambda rng, turn: 0.5))
    same = make_run("b", phases=one(lambda rng, turn: 0.5))
    other = make_run("c", phases=one(lambda rng, turn: 0.6))
    assert "no difference can be claimed" in compare(constant, same).find("recovery")[0].claim
    assert "longer (1.2×" in compare(constant, other).find("recovery")[0].claim


def test_a_base_of_zero_has_no_ratio(make_run: MakeRun) -> None:
    zero = make_run("a", phases=lambda rng, turn: {"detect": 0.1, "decide": 0.0})
    some = make_run("b", phases=lambda rng, turn: {"detect": 0.1, "decide": 0.2})
    (decide,) = compare(zero, some).find("decide")
    assert decide.ratio is None
    assert "a ratio to zero or less has no meaning" in decide.claim


def test_a_measure_without_values_is_said_to_have_none(make_run: MakeRun, base: StoredRun) -> None:
    (recovery,) = compare(base, make_run("new", phases=lambda rng, turn: {})).find("recovery")
    assert recovery.claim == "recovery: nothing to compare; the new run has no value."


def test_different_backends_are_refused_unless_asked_for(
    make_run: MakeRun, base: StoredRun
) -> None:
    real = make_run("real", trials=30, backend="real", virtual=False)
    with pytest.raises(StoreError, match="mock devices and real on real ones"):
        compare(base, real)
    comparison = compare(base, real, across_backends=True)
    assert comparison.differences == (
        "backends differ: mock and real",
        "one ran in virtual time, the other in real time",
    )


def test_what_the_runs_do_not_share_is_said(make_run: MakeRun, base: StoredRun) -> None:
    new = make_run(
        "new",
        playbook={"name": "lumion-failover", "sha256": "changed"},
        rack={"name": "rack16", "sha256": "b"},
        vars={"model": "llama"},
    )
    assert compare(base, new).differences == (
        "the playbook lumion-failover was changed in between",
        "racks differ: mock and rack16",
        "variable model differs: None and llama",
    )


def test_points_are_compared_with_their_own_kind(make_run: MakeRun) -> None:
    policies = [{"policy": "lumion"}, {"policy": "restart"}]
    first = make_run("a", points=policies)
    second = make_run("b", points=[policies[1], {"policy": "migrate"}])
    comparison = compare(first, second)
    assert [measure.point for measure in comparison.find("recovery")] == [{"policy": "restart"}]
    with pytest.raises(StoreError, match="no sweep point in common"):
        compare(make_run("c", points=policies), make_run("d", points=[{"policy": "x"}] * 2))


def test_one_seed_gives_one_comparison(make_run: MakeRun, base: StoredRun) -> None:
    new = make_run("new", trials=30, seed=2)
    assert compare(base, new, seed=3) == compare(base, new, seed=3)
    json.dumps(compare(base, new).as_record(), allow_nan=False)


def test_further_runs_are_compared_with_the_first(make_run: MakeRun, base: StoredRun) -> None:
    others = [make_run(name, seed=seed) for seed, name in enumerate("bc")]
    assert [c.new for c in compare_many([base, *others])] == ["b", "c"]
    with pytest.raises(StoreError, match="at least two"):
        compare_many([base])


@pytest.mark.parametrize(
    ("rule", "failed"),
    [
        ("recovery.median > 1.1x", True),
        ("recovery.median > 1.6x", False),
        ("recovery.median>=1.1×", True),
        ("recovery.p95 > 10 s", False),
        ("recovery.p95 > 100 ms", True),
        ("recovery.n < 28", False),
        ("detect.median > 1.1x", True),
        ("nothing.median > 1.1x", True),  # what cannot be judged has failed
        ("regroup.median > 1.1x", True),
    ],
)
def test_a_rule_fails_a_regression(
    make_run: MakeRun, base: StoredRun, rule: str, failed: bool
) -> None:
    comparison = compare(base, make_run("new", trials=30, slow=1.5))
    (result,) = fail_if(rule).check(comparison)
    assert result.failed is failed
    assert result.detail


@pytest.mark.parametrize(
    "rule", ["", "recovery", "recovery.median", "recovery.median > ", "recovery.p96 > 1.1x",
             "recovery.median = 1.1x", "recovery.median > fast", "recovery.median > 1.1 y"]
)  # fmt: skip
def test_a_rule_that_cannot_be_read_says_what_is_allowed(rule: str) -> None:
    with pytest.raises(PlaybookError) as caught:
        fail_if(rule)
    assert caught.value.remedy
