"""The kinds of tokenizers and generators: each has a package, a line here, and a section of params.yaml."""

from darkroom.kinds import Kinds

TOKENIZERS = Kinds(
    chosen_by="train_tokenizer.kind",
    package="darkroom.models.tokenizers",
    parts={
        "settings": "train_tokenizer",
        "network": "models/tokenizer",
        "recipe": "train_tokenizer",  # of a kind that is trained
        "imported": "train_tokenizer",  # of a kind that is not: its published weights, if it has any
        "sample": "sample_tokenizer",  # of a kind that generates by itself
    },
    kinds={
        "kl": {"settings": "kl.settings:KL", "network": "kl.network:KLAutoencoder", "recipe": "kl.recipe:KLRecipe"},
        "dvae": {
            "settings": "dvae.settings:DVAE",
            "network": "dvae.tokenizer:DiscreteVAE",
            "recipe": "dvae.recipe:DVAERecipe",
        },
        "vqgan": {
            "settings": "vqgan.settings:VQGAN",
            "network": "vqgan.network:VQGANTokenizer",
            "recipe": "vqgan.recipe:VQGANRecipe",
        },
        "vq_ar": {
            "settings": "vq_ar.settings:VQAR",
            "network": "vq_ar.network:VQAutoregressive",
            "recipe": "vq_ar.recipe:VQARRecipe",
            "sample": "vq_ar.generate:generate",
        },
        "pretrained": {
            "settings": "kl.settings:Pretrained",
            "network": "kl.network:KLAutoencoder",
            "imported": "kl.network:load_pretrained",
        },
        "identity": {
            "settings": "sections:Identity",
            "network": "identity:IdentityTokenizer",
            "imported": "identity:of_shape",
        },
    },
)

GENERATORS = Kinds(
    chosen_by="train_generator.kind",
    package="darkroom.models.generators",
    parts={
        "settings": "train_generator",
        "recipe": "train_generator",
        "sampler": "models/generator",  # of a kind that generates
        "sampling": "models/generator",  # the settings of the sampler
        "imported": "train_generator",  # of a kind that is not trained: its published weights
    },
    kinds={
        "dit": {
            "settings": "dit.settings:DiT",
            "recipe": "dit.recipe:DiTRecipe",
            "sampler": "dit.sample:DiTSampler",
            "sampling": "dit.settings:DiTGenerated",
        },
        "autoregressive": {
            "settings": "autoregressive.settings:Autoregressive",
            "recipe": "autoregressive.recipe:AutoregressiveRecipe",
            "sampler": "autoregressive.sample:AutoregressiveSampler",
            "sampling": "autoregressive.settings:AutoregressiveSampling",
        },
        "masked": {
            "settings": "masked.settings:Masked",
            "recipe": "masked.recipe:MaskedRecipe",
            "sampler": "masked.sample:MaskedSampler",
            "sampling": "masked.settings:MaskedSampling",
        },
        "pretrained": {
            "settings": "pretrained.settings:Pretrained",
            "sampler": "dit.sample:DiTSampler",
            "sampling": "pretrained.settings:PretrainedSampling",
            "imported": "pretrained.network:load_pretrained",
        },
        "none": {"settings": "kind_settings:NoGenerator", "sampling": "kind_settings:NoSampling"},
    },
)
