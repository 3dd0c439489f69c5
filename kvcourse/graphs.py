"""Graphs that torch.compile makes of a step: counted, and run as they are."""

import torch


def recorder():
    """A backend for `torch.compile` that notes each graph and runs it unchanged, and the list of its graphs.

    A real backend, such as inductor, would make fast code of each. As many graphs come to either.
    """
    graphs = []

    def backend(graph, example_inputs):
        graphs.append(graph)
        return graph.forward

    return backend, graphs


def compiled(step, dynamic=None):
    """`step` compiled anew, and the list of graphs that were made for it so far.

    `dynamic=False` stands for a compiler that knows fixed shapes only. What was compiled before is forgotten. A step
    that does not fit into one graph, or that needs more than eight of them, is an error of torch.
    """
    torch._dynamo.reset()
    backend, graphs = recorder()
    return torch.compile(step, fullgraph=True, backend=backend, dynamic=dynamic), graphs


@torch.no_grad()
def decode_compiled(model, input_ids, cache, steps=30, sequences=1):
    """Greedy decoding with a compiled step. Returns the graphs, and how many there were after each step.

    `input_ids`: (batch, tokens), read as it is, not compiled; then `steps` steps of one token. With `sequences`, the
    same again, each time from a reset cache.
    """
    (step, graphs), counts = compiled(model.forward), []
    for _ in range(sequences):
        cache.reset()
        logits = model(input_ids, cache=cache).logits
        for _ in range(steps):
            logits = step(logits[:, -1:].argmax(-1), cache=cache).logits
            counts.append(len(graphs))
    return graphs, counts
