"""Lesson 01: the newest query, a loop with two lists, positions counted, who may keep keys."""

import torch

# 01a


def last(q, K, V):
    scores = q @ K.transpose(2, 3) / q.shape[3] ** 0.5
    return torch.softmax(scores, dim=3) @ V


def by_library(q, K, V):
    return torch.nn.functional.scaled_dot_product_attention(q, K, V)


def by_hand(q, K, V):
    out = torch.zeros_like(q)
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            weights = torch.tensor([float(q[b, h, 0] @ key) for key in K[b, h]]) / q.shape[3] ** 0.5
            out[b, h, 0] = sum(w * v for w, v in zip(weights.softmax(0), V[b, h], strict=True))
    return out


def without_scale(q, K, V):
    return (q @ K.mT).softmax(-1) @ V


def scaled_by_head_dim(q, K, V):
    return (q @ K.mT / q.shape[-1]).softmax(-1) @ V


def scaled_by_length(q, K, V):
    return (q @ K.mT / K.shape[-2] ** 0.5).softmax(-1) @ V


def softmax_over_queries(q, K, V):
    return (q @ K.mT / q.shape[-1] ** 0.5).softmax(-2) @ V


def softmax_over_heads(q, K, V):
    return (q @ K.mT / q.shape[-1] ** 0.5).softmax(1) @ V


def mask_from_the_wrong_corner(q, K, V):
    n = K.shape[-2]
    mask = torch.triu(torch.ones(n, n), 1).bool()
    scores = (q @ K.mT / q.shape[-1] ** 0.5).masked_fill(mask[:1], -1e9)
    return scores.softmax(-1) @ V


def blind_to_itself(q, K, V):
    scores = q @ K.mT / q.shape[-1] ** 0.5
    if K.shape[2] > 1:
        scores[..., -1] = float("-inf")
    return scores.softmax(-1) @ V


def no_softmax(q, K, V):
    return q @ K.mT / q.shape[-1] ** 0.5 @ V


def mixes_keys(q, K, V):
    return (q @ K.mT / q.shape[-1] ** 0.5).softmax(-1) @ K


def weights_alone(q, K, V):
    return (q @ K.mT / q.shape[-1] ** 0.5).softmax(-1)


def without_token_axis(q, K, V):
    return last(q, K, V).squeeze(2)


def not_turned(q, K, V):
    return (q @ K / q.shape[-1] ** 0.5).softmax(-1) @ V


def newest_value(q, K, V):
    return V[:, :, -1:]


def by_einsum(q, K, V):
    shares = torch.einsum("bhqd,bhkd->bhqk", q, K).div(q.size(-1) ** 0.5).softmax(-1)
    return torch.einsum("bhqk,bhkd->bhqd", shares, V)


def keys_first(q, K, V):
    """Right: a column of scores, turned afterwards."""
    return (K @ q.mT / q.shape[-1] ** 0.5).softmax(2).mT @ V


def changes_the_keys(q, K, V):
    K /= q.shape[-1] ** 0.5
    return (q @ K.mT).softmax(-1) @ V


def capital_t(q, K, V):
    return (q @ K.permute(3, 2, 1, 0) / q.shape[-1] ** 0.5).softmax(-1) @ V  # K.T, without torch's warning


def wrong_axes_swapped(q, K, V):
    return (q @ K.transpose(1, 2) / q.shape[-1] ** 0.5).softmax(-1) @ V


def star_for_at(q, K, V):
    return torch.softmax(q * K / q.shape[-1] ** 0.5, dim=-1) * V


def scaled_too_late(q, K, V):
    return torch.softmax(q @ K.mT, -1) / q.shape[-1] ** 0.5 @ V


def key_times_query(q, K, V):
    return torch.softmax(K @ q.mT / q.shape[-1] ** 0.5, dim=-1) @ V


def as_a_list(q, K, V):
    return last(q, K, V).tolist()


def as_numpy(q, K, V):
    return last(q, K, V).numpy()


# 01b


def two_lists(model, prompt, count):
    queries, keys, values = model.read(prompt, start=0)
    keys, values = list(keys), list(values)
    text = [model.next_token(queries[-1], keys, values)]
    while len(text) < count:
        q, k, v = model.read([text[-1]], start=len(prompt) + len(text) - 1)
        keys += list(k)
        values += list(v)
        text.append(model.next_token(q[-1], keys, values))
    return text


def blocks_in_lists(model, prompt, count):
    """Right too: whole tensors in the lists, and the prompt read token by token."""
    keys, values, written = [], [], []
    for position in range(len(prompt) + count - 1):
        token = prompt[position] if position < len(prompt) else written[-1]
        q, k, v = model.read(token, position)
        keys.append(k), values.append(v)
        if position >= len(prompt) - 1:
            written.append(model.next_token(q, keys, values))
    return tuple(written)


def loop(model, prompt, count, start=None, again=False, values_from=2, ask=-1):
    keys, values, text, new = [], [], list(prompt), list(prompt)
    for _ in range(count):
        read = model.read(new, len(keys) if start is None else start(keys))
        keys.extend(read[1]), values.extend(read[values_from])
        text.append(model.next_token(read[0][ask], keys, values))
        new = list(text) if again else text[-1:]
    return text[len(prompt) :]


def keeps_nothing(model, prompt, count):
    text = list(prompt)
    while len(text) < len(prompt) + count:
        queries, keys, values = model.read(text, start=0)
        text.append(model.next_token(queries[-1], keys=keys, values=values))
    return text[-count:]


def whole_text_again(model, prompt, count):
    return loop(model, prompt, count, start=lambda keys: 0, again=True)


def positions_restart(model, prompt, count):
    return loop(model, prompt, count, start=lambda keys: 0)


def one_position_too_far(model, prompt, count):
    return loop(model, prompt, count, start=lambda keys: len(keys) + 1)


def keys_in_both(model, prompt, count):
    return loop(model, prompt, count, values_from=1)


def all_in_one_list(model, prompt, count):
    kept, other, text, new = [], [], [], prompt
    for _ in range(count):
        q, k, v = model.read(new, len(kept))
        kept.extend(k), kept.extend(v)
        text.append(model.next_token(q[-1], kept, other))
        new = text[-1:]
    return text


def first_one_asks(model, prompt, count):
    return loop(model, prompt, count, ask=0)


def only_the_newest_kept(model, prompt, count):
    text, new, seen = [], list(prompt), 0
    for _ in range(count):
        q, k, v = model.read(new, seen)
        keys, values = [*k], [*v]
        seen += len(new)
        text.append(model.next_token(q[-1], keys, values))
        new = [text[-1]]
    return text


def returns_the_prompt_too(model, prompt, count):
    return prompt + two_lists(model, prompt, count)


def one_too_few(model, prompt, count):
    return two_lists(model, prompt, count)[: count - 1] if count > 1 else []


def reads_the_last_too(model, prompt, count):
    keys, values, text = [], [], []
    q, k, v = model.read(prompt, 0)
    for _ in range(count):
        keys.extend(k), values.extend(v)
        text.append(model.next_token(q[-1], keys, values))
        q, k, v = model.read(text[-1:], len(keys))
    return text


def asks_with_all_queries(model, prompt, count):
    q, k, v = model.read(prompt, 0)
    return [model.next_token(q, list(k), list(v))] * count


def writes_for_ever(model, prompt, count):
    text = [0]
    while len(text) > 0:
        text = text + [1]
        text = text[-1:]


def forgets_to_return(model, prompt, count):
    two_lists(model, prompt, count)


def by_step(model, prompt, count, place=lambda P, n, held: held, put=(1, 2), ask=None, keep=(True, True)):
    """As with `two_lists`, the prompt read at 0; `place` of the new token, `put`: where keys and values come from."""
    read = model.read(prompt, 0)
    kept = [list(read[which]) if keeps else [] for which, keeps in zip(put, keep, strict=True)]
    written = [model.next_token(read[0][-1], *kept)]
    first = read[0][-1]
    while len(written) < count:
        read = model.read(written[-1:], place(len(prompt), len(written), len(kept[0])))
        for rows, which, keeps in zip(kept, put, keep, strict=True):
            rows.extend(read[which] if keeps else [])
        written.append(model.next_token(first if ask == "prompt" else read[0][-1], *kept))
    return written


def place_without_the_prompt(model, prompt, count):
    return by_step(model, prompt, count, place=lambda P, n, held: n)


def place_after_the_append(model, prompt, count):
    return by_step(model, prompt, count, place=lambda P, n, held: P + n)


def prompt_at_its_end(model, prompt, count):
    keys, values, written, new = [], [], [], prompt
    for _ in range(count):
        q, k, v = model.read(new, start=len(prompt) + len(written))
        keys.extend(k), values.extend(v)
        written.append(model.next_token(q[-1], keys, values))
        new = written[-1:]
    return written


def dots_left_standing(model, prompt, count):
    return by_step(model, prompt, count, keep=(True, False))


def keys_for_values(model, prompt, count):
    return by_step(model, prompt, count, put=(2, 1))


def old_query_asks(model, prompt, count):
    return by_step(model, prompt, count, ask="prompt")


def another_model(model, prompt, count):
    return two_lists(type(model)(), prompt, count)


def one_too_many(model, prompt, count):
    return two_lists(model, prompt, count + 1)


def as_a_tensor(model, prompt, count):
    return torch.tensor(two_lists(model, prompt, count))


def one_list_twice(model, prompt, count):
    K = V = []
    text, new = [], prompt
    while len(text) < count:
        q, k, v = model.read(new, len(prompt) + len(text) - 1 if text else 0)
        K += list(k)
        V += list(v)
        new = [model.next_token(q[-1], K, V)]
        text += new
    return text


def one_list_counted(model, prompt, count):
    K = V = []
    text, new = [], prompt
    for _ in range(count):
        q, k, v = model.read(new, len(K))
        K.extend(k), V.extend(v)
        text.append(model.next_token(q[-1], K, V))
        new = text[-1:]
    return text


# 01c


def costs(P, N, cached):
    if cached:
        return P + N - 1, P * P + sum(P + i for i in range(1, N))
    return sum(P + i for i in range(N)), sum((P + i) ** 2 for i in range(N))


def closed(P, N, cached):
    """Right: formulas of school, floats from the divisions, a list."""
    squares = [n * (n + 1) * (2 * n + 1) / 6 for n in (P - 1, P + N - 1)]
    if not cached:
        return [N * P + N * (N - 1) / 2, squares[1] - squares[0]]
    return [P + N - 1, P**2 + (N - 1) * (P + N / 2)]


def as_tensor(P, N, cached):
    return torch.tensor(costs(P, N, cached))


def with_products(products):
    """Right positions, and dot products as `products(P, N, cached)` says."""
    return lambda P, N, cached: (costs(P, N, cached)[0], products(P, N, cached))


def positions_alone(P, N, cached):
    return costs(P, N, cached)[0]


def lists_of_steps(P, N, cached):
    fed = [P] + [1] * (N - 1) if cached else [P + i for i in range(N)]
    return fed, [q * (P + i) for i, q in enumerate(fed)]


def a_step_missing(P, N, cached):
    return costs(P, N, cached) if cached else (sum(P + i for i in range(N - 1)), costs(P, N, cached)[1])


def gauss_from_one(P, N, cached):
    return costs(P, N, cached) if cached else ((P + N) * (P + N - 1) // 2, costs(P, N, cached)[1])


def in_text(P, N, cached):
    return tuple(map(str, costs(P, N, cached)))


def without_else(P, N, cached):
    if cached:
        return costs(P, N, cached)


def positions(P, N, cached):
    return P + N - 1 if cached else N * P + N * (N - 1) // 2


def positions_said(said):
    """Dot products are right, positions as `said` by a function of before."""
    return lambda P, N, cached: (said(P, N, cached), costs(P, N, cached)[1])


def p_plus_n(P, N, cached):
    return P + N if cached else positions(P, N, cached)


def p_times_n(P, N, cached):
    return P + N - 1 if cached else P * N


def final_text_each_time(P, N, cached):
    return P + N - 1 if cached else (P + N) * N


def prompt_forgotten_without(P, N, cached):
    return P + N - 1 if cached else sum(range(N))


def prompt_forgotten_with(P, N, cached):
    return N if cached else positions(P, N, cached)


def one_more_each_step(P, N, cached):
    return P + N - 1 if cached else sum(P + i + 1 for i in range(N))


def turned_round(P, N, cached):
    return costs(P, N, not cached)


def cache_ignored(P, N, cached):
    return costs(P, N, False)


def prompt_in_one_step(P, N, cached):
    return 1 + N if cached else positions(P, N, cached)


def p_plus_n_twice(P, N, cached):
    return P + N if cached else P * N


# 01d

KEPT = {"causal": "always", "encoder": "never", "prefix-LM": "after the prefix", "window": "always"}


WRONG = {
    "01a": [
        (without_scale, "not divided by the square root of head_dim"),
        (scaled_by_head_dim, "not by head_dim itself"),
        (scaled_by_length, "root of the number of tokens"),
        (softmax_over_queries, "went over the queries"),
        (softmax_over_heads, "went over the heads"),
        (mask_from_the_wrong_corner, "wrong corner"),
        (blind_to_itself, "does not look at itself"),
        (no_softmax, "no softmax"),
        (mixes_keys, "what a token hands over is its value"),
        (weights_alone, "still to be multiplied with the values"),
        (without_token_axis, "keep the axis of the tokens"),
        (not_turned, "K has to be turned"),
        (changes_the_keys, "writes into a tensor that it was given"),
        (capital_t, "K.T swaps all four axes"),
        (wrong_axes_swapped, "K has to be turned"),
        (star_for_at, "a dot product also adds them up"),
        (scaled_too_late, "divided after the softmax"),
        (key_times_query, "the query goes first"),
        (as_a_list, "a list came"),
        (as_numpy, "a NumPy array"),
        (newest_value, "expected"),
        (lambda q, K, V: torch.zeros(1, 1, 1, 4), "expected"),
    ],
    "01b": [
        (keeps_nothing, "nothing was kept"),
        (whole_text_again, "so they are there twice"),
        (positions_restart, "read at position 0 again"),
        (one_position_too_far, "one position too far on"),
        (place_after_the_append, "one position too far on"),
        (place_without_the_prompt, "the prompt was forgotten"),
        (prompt_at_its_end, "it begins at position 0"),
        (dots_left_standing, "the list of values is empty"),
        (keys_for_values, "swapped"),
        (old_query_asks, "the query of the prompt asked"),
        (another_model, "another OneHead"),
        (one_too_many, "a token too many"),
        (lambda model, prompt, count: [], "nothing was written"),
        (keys_in_both, "went into both lists"),
        (all_in_one_list, "values into the other"),
        (one_list_twice, "one and the same list"),
        (one_list_counted, "one and the same list"),
        (first_one_asks, "the newest token asks"),
        (only_the_newest_kept, "were replaced"),
        (returns_the_prompt_too, "return the new tokens alone"),
        (one_too_few, "a token is missing"),
        (reads_the_last_too, "one position too many"),
        (asks_with_all_queries, "give one query, that of the newest token"),
        (writes_for_ever, "does the loop ever end?"),
        (forgets_to_return, "`return` missing"),
    ],
    "01c": [
        (positions_said(p_plus_n), "P + N: the last new token is never read"),
        (positions_said(p_times_n), "P x N: the text grows"),
        (positions_said(final_text_each_time), "not every step reads the final text"),
        (positions_said(prompt_forgotten_without), "without a cache it is read again at every step"),
        (positions_said(prompt_forgotten_with), "does not save the first reading"),
        (positions_said(one_more_each_step), "one too many at each step"),
        (positions_said(prompt_in_one_step), "not in one step"),
        (positions_said(p_plus_n_twice), "P x N: the text grows"),
        (turned_round, "turned round"),
        (cache_ignored, "number without a cache"),
        (a_step_missing, "a step is missing"),
        (gauss_from_one, "it begins at P"),
        (positions_alone, "two numbers are asked for"),
        (lists_of_steps, "the card asks for their sum"),
        (in_text, "text came"),
        (without_else, "`return` missing"),
        (lambda P, N, cached: costs(P, N, cached)[::-1], "positions first"),
        (with_products(positions), "each query meets many keys"),
        (with_products(lambda P, N, c: costs(P, N, c)[1] if c else sum(P + i for i in range(N))), "meets each key"),
        (with_products(lambda P, N, c: costs(P, N, False)[1]), "later steps have one query"),
        (with_products(lambda P, N, c: costs(P, N, c)[1] if c else costs(P, N, c)[1] // 2), "hidden afterwards"),
        (with_products(lambda P, N, c: costs(P, N, c)[1] if c else positions(P, N, c) ** 2), "square of the sum"),
        (with_products(lambda P, N, c: sum(P + i for i in range(N)) if c else costs(P, N, c)[1]), "P keys each"),
        (with_products(lambda P, N, c: P * P + N - 1 if c else costs(P, N, c)[1]), "all the keys so far"),
        (with_products(lambda P, N, c: costs(P, N, c)[1] + (P + N if c else 0)), "the last new token is never read"),
        (with_products(lambda P, N, c: costs(P, N, c)[1] - (N - 1 if c else 0)), "looks at itself"),
    ],
    "01d": [
        (dict.fromkeys(KEPT, "always"), "layer 0 proves nothing"),
        (KEPT | {"encoder": "always"}, "Compare all layers"),
        (KEPT | {"encoder": "after the prefix"}, "every token looks at every other one"),
        (KEPT | {"window": "never"}, "the window moves on"),
        (KEPT | {"prefix-LM": "always"}, "the first 4 tokens see each other"),
        (KEPT | {"prefix-LM": "never"}, "no old token sees a new one"),
        (dict.fromkeys(KEPT, "never"), "no old token can see the new one"),
        (KEPT | {"window": "yes"}, "choose one of: always"),
    ],
}
SHOUTED = {name.upper(): f" {word.capitalize()}\n" for name, word in KEPT.items()}
RIGHT = {
    "01a": [last, by_library, by_hand, by_einsum, keys_first],
    "01b": [two_lists, blocks_in_lists, as_a_tensor],
    "01c": [costs, closed, as_tensor],
    "01d": [KEPT, SHOUTED],
}
