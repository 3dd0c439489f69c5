"""Draw the figure of the README from a live run: python benchmarks/readme_figure.py"""

from pathlib import Path

import kvcourse as kv

TARGET = Path(__file__).parent.parent / "notebooks" / "images" / "staircase.png"


def main():
    model, tokenizer = kv.load()
    prompt = tokenizer("I like rock music because", return_tensors="pt").input_ids
    runs = [kv.measure.decode(model, prompt, 20, cache) for cache in (None, kv.DynamicCache())]
    figure = kv.show.staircase(runs[0].steps, runs[1].steps)
    TARGET.parent.mkdir(exist_ok=True)
    figure.savefig(TARGET, dpi=110, metadata={"Software": None})
    print(kv.show.alt(figure))


if __name__ == "__main__":
    main()
