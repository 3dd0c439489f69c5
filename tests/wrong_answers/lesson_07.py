"""Lesson 07: one prefix for many, the seam, the order of a prompt, the bill."""

import copy

import kvcourse as kv

# 07a


def answers(model, prefix, prompts, new):
    """Right."""
    texts = []
    for ids in prompts:
        mine = copy.deepcopy(prefix)
        texts.append(kv.greedy(model, ids, new, mine))
    return texts


def answers_with_generate(model, prefix, prompts, new):
    """Right."""
    options = {"max_new_tokens": new, "do_sample": False, "pad_token_id": 0}
    return tuple(model.generate(ids, cache=copy.deepcopy(prefix), **options) for ids in prompts)


def answers_and_goes_back(model, prefix, prompts, new):
    """Right: no copy, but the prefix is rolled back behind each answer."""
    length, texts = prefix.get_seq_length(), []
    for ids in prompts:
        texts.append(kv.greedy(model, ids, new, prefix))
        prefix.crop(length - prefix.get_seq_length())
    return texts


def no_copy(model, prefix, prompts, new):
    return [kv.greedy(model, ids, new, prefix) for ids in prompts]


def shallow(model, prefix, prompts, new):
    return [kv.greedy(model, ids, new, copy.copy(prefix)) for ids in prompts]


def copies_after_the_first_answer(model, prefix, prompts, new):
    texts = [kv.greedy(model, prompts[0], new, prefix)]
    for ids in prompts[1:]:
        texts.append(kv.greedy(model, ids, new, copy.deepcopy(prefix)))
    return texts


def one_copy_for_all(model, prefix, prompts, new):
    cache = copy.deepcopy(prefix)
    return [kv.greedy(model, ids, new, cache) for ids in prompts]


def an_empty_cache_each(model, prefix, prompts, new):
    return [kv.greedy(model, ids, new, kv.DynamicCache(config=model.config)) for ids in prompts]


def nothing_cached(model, prefix, prompts, new):
    return [kv.greedy(model, ids, new) for ids in prompts]


def only_the_questions(model, prefix, prompts, new):
    length = prefix.get_seq_length()
    return [kv.greedy(model, ids[:, length:], new, copy.deepcopy(prefix)) for ids in prompts]


def empties_it(model, prefix, prompts, new):
    texts = answers(model, prefix, prompts, new)
    prefix.crop(-prefix.get_seq_length())
    return texts


def only_new(model, prefix, prompts, new):
    return [text[:, -new:] for text in answers(model, prefix, prompts, new)]


def returns_in_the_loop(model, prefix, prompts, new):
    texts = []
    for ids in prompts:
        texts.append(kv.greedy(model, ids, new, copy.deepcopy(prefix)))
        return texts


def collects_nothing(model, prefix, prompts, new):
    texts = []
    for ids in prompts:
        kv.greedy(model, ids, new, copy.deepcopy(prefix))
    return texts


def one_by_one(model, prefix, prompts, new):
    for ids in prompts:
        yield kv.greedy(model, ids, new, copy.deepcopy(prefix))


def as_text(model, prefix, prompts, new):
    return [" ".join(map(str, text[0].tolist())) for text in answers(model, prefix, prompts, new)]


def without_the_first_axis(model, prefix, prompts, new):
    return [text[0] for text in answers(model, prefix, prompts, new)]


def prints_them(model, prefix, prompts, new):
    answers(model, prefix, prompts, new)


def the_first_alone(model, prefix, prompts, new):
    return kv.greedy(model, prompts[0], new, copy.deepcopy(prefix))


# 07b


def go_on(tokenizer, cache, rules, prompt):
    """Right."""
    held, ids, saved = tokenizer(rules).input_ids, tokenizer(prompt).input_ids, 0
    while saved < min(len(held), len(ids) - 1) and held[saved] == ids[saved]:
        saved += 1
    cache.crop(-(len(held) - saved))
    return ids[saved:], saved


def go_on_with_tensors(tokenizer, cache, rules, prompt):
    """Right."""
    held, ids = (tokenizer(text, return_tensors="pt").input_ids for text in (rules, prompt))
    saved = min(kv.common_prefix(held, ids), ids.shape[1] - 1)
    cache.crop(saved - held.shape[1])
    return ids[:, saved:], saved


def tokenizes_the_request(tokenizer, cache, rules, prompt):
    return tokenizer(prompt[len(rules) :]).input_ids, cache.get_seq_length()


def always_one_back(tokenizer, cache, rules, prompt):
    cache.crop(-1)
    saved = cache.get_seq_length()
    return tokenizer(prompt).input_ids[saved:], saved


def one_back_from_the_prefix(tokenizer, cache, rules, prompt):
    held, ids = tokenizer(rules).input_ids, tokenizer(prompt).input_ids
    saved = max(kv.common_prefix(held, ids) - 1, 0)
    cache.crop(saved - len(held))
    return ids[saved:], saved


def feeds_nothing(tokenizer, cache, rules, prompt):
    held, ids = tokenizer(rules).input_ids, tokenizer(prompt).input_ids
    saved = kv.common_prefix(held, ids)
    cache.crop(saved - len(held))
    return ids[saved:], saved


def trusts_the_length(tokenizer, cache, rules, prompt):
    saved = cache.get_seq_length()
    return tokenizer(prompt).input_ids[saved:], saved


def crops_nothing(tokenizer, cache, rules, prompt):
    ids = tokenizer(prompt).input_ids
    saved = min(kv.common_prefix(tokenizer(rules).input_ids, ids), len(ids) - 1)
    return ids[saved:], saved


def starts_again(tokenizer, cache, rules, prompt):
    cache.reset()
    return tokenizer(prompt).input_ids, 0


def feeds_it_all(tokenizer, cache, rules, prompt):
    return tokenizer(prompt).input_ids, go_on(tokenizer, cache, rules, prompt)[1]


def counts_the_old_length(tokenizer, cache, rules, prompt):
    saved = cache.get_seq_length()
    return go_on(tokenizer, cache, rules, prompt)[0], saved


def cropped_by(tokens):
    """All right but the argument of `crop`, from (saved, held, ids)."""

    def wrong_go_on(tokenizer, cache, rules, prompt):
        held, ids = tokenizer(rules).input_ids, tokenizer(prompt).input_ids
        saved = min(kv.common_prefix(held, ids), len(ids) - 1)
        cache.crop(tokens(saved, held, ids))
        return ids[saved:], saved

    return wrong_go_on


def along_the_first_axis(tokenizer, cache, rules, prompt):
    held, ids = (tokenizer(text, return_tensors="pt").input_ids for text in (rules, prompt))
    saved = min(kv.common_prefix(held, ids), len(ids) - 1)
    cache.crop(saved - len(held))
    return ids[saved:], saved


def feeds_along_the_first_axis(tokenizer, cache, rules, prompt):
    feed, saved = go_on_with_tensors(tokenizer, cache, rules, prompt)
    return tokenizer(prompt, return_tensors="pt").input_ids[saved:], saved


def number_first(tokenizer, cache, rules, prompt):
    feed, saved = go_on(tokenizer, cache, rules, prompt)
    return saved, feed


def forgets_to_return(tokenizer, cache, rules, prompt):
    go_on(tokenizer, cache, rules, prompt)


def the_ids_alone(tokenizer, cache, rules, prompt):
    return go_on(tokenizer, cache, rules, prompt)[0]


def the_package(tokenizer, cache, rules, prompt):
    step = kv.continue_from(cache, tokenizer(rules).input_ids, tokenizer(prompt).input_ids)
    return step.feed, step.saved


# 07c

ORDER = ["rules", "documents", "user", "question", "clock"]


# 07d


def bill(prefix, questions, output, block):
    """Right."""
    fresh = cached = 0
    for number, question in enumerate(questions):
        found = prefix // block * block if number else 0
        cached += found
        fresh += prefix + question - found
    return fresh, cached, output * len(questions)


def billed(hit=lambda p, b: p // b * b, hits=-1, out=None, fresh=None):
    def wrong_bill(prefix, questions, output, block):
        n = len(questions)
        cached = hit(prefix, block) * (n + hits)
        rest = n * prefix + sum(questions) - cached
        return fresh(prefix, questions) if fresh else rest, cached, out(output, n) if out else output * n

    return wrong_bill


def output_at_a_discount(prefix, questions, output, block):
    fresh, cached, written = bill(prefix, questions, output, block)
    return fresh, cached + written - output, output


def blocks_of_all(prefix, questions, output, block):
    fresh, cached, written = bill(prefix, questions, output, 1)
    return fresh + cached % block, cached - cached % block, written


def blocks_with_the_question(prefix, questions, output, block):
    cached = sum((prefix + question) // block * block for question in questions[1:])
    return prefix * len(questions) + sum(questions) - cached, cached, output * len(questions)


def always_reads_one_of_the_prefix(prefix, questions, output, block):
    cached = (prefix - 1) // block * block * (len(questions) - 1)
    return prefix * len(questions) + sum(questions) - cached, cached, output * len(questions)


def the_questions_alone(prefix, questions, output, block):
    _, cached, written = bill(prefix, questions, output, block)
    return sum(questions), cached, written


def forgets_to_return_it(prefix, questions, output, block):
    bill(prefix, questions, output, block)


def swapped(prefix, questions, output, block):
    fresh, cached, written = bill(prefix, questions, output, block)
    return cached, fresh, written


def the_sum(prefix, questions, output, block):
    return sum(bill(prefix, questions, output, block))


WRONG = {
    "07a": [
        (no_copy, "no copy was made, or a shallow one"),
        (shallow, "no copy was made, or a shallow one"),
        (copies_after_the_first_answer, "copied after the first answer"),
        (one_copy_for_all, "each needs a copy of its own"),
        (an_empty_cache_each, "the prefix was read again"),
        (nothing_cached, "the prefix was read again"),
        (only_the_questions, "hand over the whole prompt"),
        (empties_it, "the prefix is empty afterwards"),
        (only_new, "return the whole texts"),
        (the_first_alone, "a text for each prompt"),
        (returns_in_the_loop, "inside the loop"),
        (collects_nothing, "append the text"),
        (one_by_one, "return a list"),
        (as_text, "not decoded"),
        (without_the_first_axis, "keep the first axis"),
        (prints_them, "`return` missing"),
    ],
    "07b": [
        (tokenizes_the_request, "cut into tokens by itself"),
        (always_one_back, "one token was cropped whatever the prompt is"),
        (one_back_from_the_prefix, "one token too many was cropped"),
        (feeds_nothing, "nothing is left to feed"),
        (trusts_the_length, "the ids were cut by a length"),
        (crops_nothing, "the cache still holds other ones"),
        (starts_again, "everything was thrown away"),
        (feeds_it_all, "read twice"),
        (counts_the_old_length, "not all that it held before"),
        (the_ids_alone, "return both"),
        (cropped_by(lambda saved, held, ids: saved), "not the number to keep"),
        (cropped_by(lambda saved, held, ids: -saved), "those that the cache holds without those that stay"),
        (cropped_by(lambda saved, held, ids: saved - len(ids)), "len(held)"),
        (along_the_first_axis, "is 1, so nothing could be saved"),
        (feeds_along_the_first_axis, "along its first axis"),
        (number_first, "the ids come first"),
        (forgets_to_return, "`return` missing"),
        (the_package, "does what this task builds"),
    ],
    "07c": [
        ((["clock", "rules", "documents", "user", "question"], 455), "the clock is another one in each request"),
        ((["rules", "clock", "documents", "user", "question"], 80), "the clock is another one in each request"),
        ((["rules", "documents", "question", "user", "clock"], 455), "the question is another one in each request"),
        ((["rules", "user", "documents", "question", "clock"], 455), "the user's text stands before the documents"),
        ((["documents", "rules", "user", "question", "clock"], 455), "the rules are the same in every request"),
        ((ORDER, 485), "matches in the middle were counted too"),
        ((ORDER, 200), "compared with the prompt before alone"),
        ((ORDER, 475), "the first request finds nothing"),
        ((ORDER, 450), "one by one"),
        ((ORDER, 440), "request 4 again"),
        ((ORDER, 575), "request 3 again"),
        ((ORDER, 335), "request 5 again"),
        ((ORDER, 300), "request 4 again"),
        ((ORDER, 865), "all tokens of all prompts"),
        (("rules, documents, user, question, clock", 455), "in quotes of its own"),
        ((ORDER, 628), "the first request finds nothing"),
        ((ORDER, 410), "the tokens that were read"),
        ((ORDER, 455 / 865), "a share"),
        ((ORDER, [0, 140, 20, 155, 140]), "one number"),
        ((ORDER, "455"), "without quotes"),
        ((["rules", "documents"], 455), "each of the five parts once"),
    ],
    "07d": [
        (billed(hit=lambda p, b: (p + b - 1) // b * b), "round down"),
        (billed(hits=0), "it is cold"),
        (output_at_a_discount, "output got the discount"),
        (billed(out=lambda output, n: output), "output got the discount"),
        (billed(hit=lambda p, b: p), "what is left over is lost"),
        (billed(hit=lambda p, b: p // b), "blocks were counted"),
        (blocks_of_all, "rounded down once, at the end"),
        (blocks_with_the_question, "the questions were taken for cached"),
        (billed(fresh=lambda p, q: p + sum(q)), "behind its last full block"),
        (swapped, "the order is fresh, cached, output"),
        (the_sum, "not three numbers"),
        (always_reads_one_of_the_prefix, "that is a token of the question"),
        (the_questions_alone, "the first request reads the prefix, too"),
        (forgets_to_return_it, "`return` missing"),
    ],
}
RIGHT = {
    "07a": [answers, answers_with_generate, answers_and_goes_back],
    "07b": [go_on, go_on_with_tensors],
    "07c": [
        (ORDER, 455),
        (("rules", "documents", "user", "clock", "question"), 455.0),
        ([part.title() for part in ORDER], 455),
    ],
    "07d": [bill, billed()],
}
