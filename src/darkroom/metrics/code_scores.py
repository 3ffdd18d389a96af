"""The scores of codes and latents, by name: what a codebook holds, and what a lossless code takes. Loads no torch."""

from dataclasses import replace

from darkroom.metrics.score import Score

_CODES = (
    Score(
        "codebook_usage",
        "codes of train",
        "Fraction of the codes of the codebook that occur at least once. Higher is better.",
        formula="share of the K codes that occur in the train split",
        title="codebook usage",
        higher_is_better=True,
    ),
    Score(
        "codebook_perplexity",
        "codes of train",
        "As many equally frequent codes would hold as much information, 2 to the entropy of a code. Higher is "
        "better, up to the size of the codebook.",
        formula="2^H, H = - sum p log2 p over the codes of the train split",
        title="codebook perplexity",
        higher_is_better=True,
    ),
    Score(
        "dead_codes",
        "codes of train",
        "Codes that never occur.",
        formula="codes that do not occur in the train split",
        title="dead codes",
    ),
)
CODES = (
    *_CODES,
    *(
        replace(
            score,
            name=f"{score.name}_scored",
            group="codes scored",
            formula=f"as {score.name}, in the split that is reconstructed",
        )
        for score in _CODES
    ),
    Score(
        "bits_per_pixel",
        "cost of codes",
        "What the codes of an image cost, all written with equally many bits, over its pixels.",
        formula="log2(K) codes / pixels of an image",
        title="bits per pixel",
    ),
    Score(
        "bits_per_pixel_entropy",
        "cost of codes",
        "The same, each code written with as many bits as its frequency asks for.",
        formula="H codes / pixels of an image, H of the codes of the split that is reconstructed",
        title="bits per pixel, entropy-coded",
    ),
)

# The variational bound of stored latents under a generator, not of generated images.
BITS = (
    Score(
        "bits_per_dim",
        "bits per dim",
        "Upper bound on what a lossless code of latents takes under the generator, bits a number, with 256 levels of "
        "them from -1 to 1: comparable between generators of the same latents. Lower is better.",
        formula="bits_prior + bits_steps + bits_decoder, over all timesteps, Ho et al. 2020, equation 5",
        error="standard deviation over latents / sqrt(their number)",
        title="bits per dim",
        paired=True,
    ),
    Score(
        "bits_prior",
        "bits per dim",
        "Of these, what the last timestep keeps of the data.",
        formula="KL(q(x_T | x_0) || N(0, I)) / (d ln 2)",
        error="as bits_per_dim_se",
        title="prior",
        paired=True,
    ),
    Score(
        "bits_steps",
        "bits per dim",
        "Of these, the steps from the last timestep to the second.",
        formula="sum over t > 0 of KL(q(x_t-1 | x_t, x_0) || p(x_t-1 | x_t)) / (d ln 2)",
        error="as bits_per_dim_se",
        title="steps",
        paired=True,
    ),
    Score(
        "bits_decoder",
        "bits per dim",
        "Of these, the first timestep.",
        formula="-log2 p(x_0 | x_1) / d, 256 levels from -1 to 1",
        error="as bits_per_dim_se",
        title="decoder",
        paired=True,
    ),
)
