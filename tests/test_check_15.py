"""Tasks of lesson 15: the formulas behind them agree with the package's own start log and plan."""

import pytest

import kvcourse as kv
from kvcourse.check.customers_15 import CUSTOMERS, GIB, KINDS, known, own_numbers
from kvcourse.check.digits_15 import readings
from kvcourse.check.plans_15 import PLANS, kept, nbytes_with, token_bytes
from kvcourse.check.servers_15 import SERVERS, log
from kvcourse.check.zeros_15 import KINDS as SIX
from kvcourse.check.zeros_15 import measured
from kvcourse.engine import engine_start
from kvcourse.public import PUBLIC


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"{plan[-1]}, {plan[0]}, {plan[2]}")
def test_the_formula_gives_what_a_real_cache_holds(plan):
    _, layers, *rest = plan
    assert nbytes_with(kept, token_bytes)(list(layers), *rest) == measured(layers, *rest)


def test_each_of_six_kinds_is_planned():
    assert {plan[-1] for plan in PLANS} == set(SIX) and len(SIX) == 6


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.what)
def test_the_start_log_is_that_of_the_engine(server):
    try:
        start = engine_start(*server.arguments())
        expected = start.blocks, start.tokens
    except ValueError:
        expected = "refuses"
    assert log(*server.arguments()) == expected


def test_some_servers_start_and_some_refuse():
    outcomes = [log(*server.arguments()) == "refuses" for server in SERVERS]
    assert 2 <= sum(outcomes) <= len(outcomes) - 2


def test_customers_have_a_kind_and_no_number_given_away():
    for customer in CUSTOMERS.values():
        assert set(customer.kinds) | set(customer.against) == set(KINDS)
        assert not set(customer.kinds) & set(customer.against)
        assert not own_numbers(f"{customer.says} {customer.asks}", customer)


@pytest.mark.parametrize(
    ("letter", "memory", "context", "batch"), [("b", 80, 16_384, 6), ("c", 24, 131_072, 1), ("f", 24, 100_000, 1)]
)
def test_the_plan_gives_the_same_advice(letter, memory, context, batch):
    model, customer = PUBLIC["Llama-3.1-8B"], CUSTOMERS[letter]
    weights = 2 * model.parameters()
    plan = kv.plan(model.config(), memory * GIB, context, batch, weights=weights, exact=letter == "c")
    named = {"fp8": "quantized", "hqq, 4 bits": "quantized"}
    assert named.get(plan.recommended.name, plan.recommended.name) in customer.kinds
    assert known(plan["dynamic"].nbytes / GIB, customer) and known(plan["dynamic"].nbytes, customer)


@pytest.mark.parametrize(
    ("sentence", "meanings"),
    [
        ("bf16: 3,840 slots, 12.2 GiB; 0.", [(3840, 3.84), (12.2,), (0,)]),
        ("12,2 GiB, 3.840 or 3 840 or 3_840 or 3'840 slots", [(12.2,), (3.84, 3840), (3840,), (3840,), (3840,)]),
        ("12.884.901.888 bytes, 1.024,5 and 1,024.5", [(12_884_901_888,), (1024.5,), (1024.5,)]),
        ("1.2e1 GiB, 16GiB, 0,9375 and 0.125", [(12,), (16,), (0.9375,), (0.125,)]),
        ("1 2 3 12, or 1,2,3", [(1,), (2,), (3,), (12,), (1,), (2,), (3,)]),
        ("2048 100 tokens", [(2048,), (100,)]),
    ],
)
def test_numbers_are_read_as_people_write_them(sentence, meanings):
    assert readings(sentence) == meanings
