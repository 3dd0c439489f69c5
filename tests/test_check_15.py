"""Tasks of lesson 15: the formulas behind them agree with the package's own start log and plan."""

import pytest

import kvcourse as kv
from kvcourse.check.customers_15 import CUSTOMERS, GIB, KINDS, known, numbers_in
from kvcourse.check.plans_15 import PLANS, measured, sizes
from kvcourse.check.servers_15 import SERVERS, log
from kvcourse.engine import engine_start
from kvcourse.public import PUBLIC


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"{plan[-1]}, {plan[0]}, {plan[2]}")
def test_the_formula_gives_what_a_real_cache_holds(plan):
    _, layers, *rest = plan
    assert sizes(list(layers), *rest) == measured(layers, *rest)


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
        assert not any(known(number, customer) for number in numbers_in(customer.says))


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


def test_numbers_are_read_as_people_write_them():
    assert numbers_in("bf16: 3,840 slots, 12.2 GiB; 0.") == [3840, 12.2, 0]
