"""The causal transformer over codes: sampling with and without its cache, and training steps beside other libraries.

    PYTHONPATH=src python benchmarks/code_transformers.py --width 768 --depth 1 --codes 256 --batch 32

Sampling without the cache computes all earlier codes again for each code; it is timed at every 16th code and summed up,
since it would take minutes. Steps are forward, backward and AdamW, in float32, with dropout 0, beside x-transformers'
`AutoregressiveWrapper` and, where `transformers` is installed, its GPT-2, at equal width, depth, heads and codes. All
take turns, and the fastest round of each counts. Prints ratios; above 1 ours is faster.
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from darkroom.models.generators.codes.network import CodesConfig, CodeTransformer
from darkroom.models.generators.codes.recipe import cross_entropy

Step = Callable[[], None]
_EVERY = 16  # codes between those that are timed without the cache


def timed(function: Callable[[], object]) -> float:
    """Return the seconds of a call."""
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def network(args: argparse.Namespace) -> CodeTransformer:
    """Return an untrained transformer."""
    torch.manual_seed(0)
    side = round(args.codes**0.5)
    heads = args.width // 64
    return CodeTransformer(CodesConfig(args.codebook, side, 1000, args.width, args.depth, heads, causal=True))


@torch.no_grad()
def sampling(args: argparse.Namespace) -> None:
    """Print the seconds of a batch of codes with the cache and without it."""
    model, labels = network(args).eval(), torch.arange(args.batch)
    given = torch.randint(args.codebook, (args.batch, args.codes))

    def cached() -> None:
        _, caches = model.begin(labels, args.batch)
        for place in range(args.codes - 1):
            model.next(given[:, place], place, caches)

    def uncached(count: int) -> Tensor:
        prefix = model._prefix(labels, args.batch)
        tokens = model.words(given[:, :count]) + model.positions.weight[:count]
        return model._logits(model._hidden(torch.cat([prefix, tokens], dim=1))[:, -1])

    with_cache = min(timed(cached) for _ in range(args.rounds))
    without = sum(
        _EVERY * timed(lambda count=count: uncached(count)) for count in range(_EVERY // 2, args.codes, _EVERY)
    )
    print(f"{args.codes} codes, batch {args.batch}, width {args.width}, depth {args.depth}")
    print(f"with the cache {with_cache:.1f} s, without about {without:.1f} s: {without / with_cache:.1f} times as fast")


def ours(args: argparse.Namespace, codes: Tensor) -> Step:
    """Return a training step of our transformer."""
    model, labels = network(args), torch.arange(len(codes))
    return _step(model, lambda: cross_entropy(model(codes, labels)[0], codes).mean())


def x_transformers(args: argparse.Namespace, codes: Tensor) -> Step:
    """Return a training step of x-transformers."""
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    layers = Decoder(dim=args.width, depth=args.depth, heads=args.width // 64, attn_dim_head=64, attn_flash=True)
    model = AutoregressiveWrapper(
        TransformerWrapper(num_tokens=args.codebook + 1, max_seq_len=args.codes + 1, attn_layers=layers)
    )
    start = torch.full((len(codes), 1), args.codebook)
    return _step(model, lambda: model(torch.cat([start, codes], dim=1)))


def gpt2(args: argparse.Namespace, codes: Tensor) -> Step | None:
    """Return a training step of transformers' GPT-2; None where it is not installed."""
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
    except ImportError:
        return None
    config = GPT2Config(
        vocab_size=args.codebook + 1, n_positions=args.codes + 1, n_embd=args.width, n_layer=args.depth,
        n_head=args.width // 64, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)
    whole = torch.cat([torch.full((len(codes), 1), args.codebook), codes], dim=1)
    return _step(model, lambda: model(input_ids=whole, labels=whole).loss)


def _step(model: nn.Module, loss: Callable[[], Tensor]) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()

    return step


def main() -> None:
    """Print both comparisons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("width", 768), ("depth", 2), ("codes", 256), ("codebook", 1024), ("batch", 32)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    sampling(args)
    codes = torch.randint(args.codebook, (args.batch // 2, args.codes))
    made = {"ours": ours(args, codes), "x-transformers": x_transformers(args, codes), "GPT-2": gpt2(args, codes)}
    steps = {name: step for name, step in made.items() if step is not None}
    for step in steps.values():
        step()  # the first one allocates
    best = dict.fromkeys(steps, float("inf"))
    for _ in range(args.rounds):
        for name, step in steps.items():
            best[name] = min(best[name], timed(step))
    for name, seconds in best.items():
        print(f"a step of {name}: {seconds:.2f} s, {seconds / best['ours']:.2f} times ours")


if __name__ == "__main__":
    main()
