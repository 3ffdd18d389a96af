"""The kinds of tokenizers and generators: a room and a line here each, and a section of params.yaml."""

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
        "kl": ["kl.settings:KL", "kl.network:KLAutoencoder", "kl.recipe:KLRecipe", None, None],
        "dvae": ["dvae.settings:DVAE", "dvae.tokenizer:DiscreteVAE", "dvae.recipe:DVAERecipe", None, None],
        "vqgan": ["vqgan.settings:VQGAN", "vqgan.network:VQGANTokenizer", "vqgan.recipe:VQGANRecipe", None, None],
        "vq_ar": [
            "vq_ar.settings:VQAR",
            "vq_ar.network:VQAutoregressive",
            "vq_ar.recipe:VQARRecipe",
            None,
            "vq_ar.generate:generate",
        ],
        "pretrained": [
            "kl.settings:Pretrained",
            "kl.network:KLAutoencoder",
            None,
            "kl.network:load_pretrained",
            None,
        ],
        "identity": [
            "identity.settings:Identity",
            "identity.network:IdentityTokenizer",
            None,
            "identity.network:of_shape",
            None,
        ],
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
        "dit": ["dit.settings:DiT", "dit.recipe:DiTRecipe", "dit.sample:DiTSampler", "dit.settings:DiTGenerated", None],
        "pretrained": [
            "pretrained.settings:Pretrained",
            None,
            "dit.sample:DiTSampler",
            "pretrained.settings:PretrainedSampling",
            "pretrained.network:load_pretrained",
        ],
        "none": ["kind_settings:NoGenerator", None, None, "kind_settings:NoSampling", None],
    },
)
