# Train the network that teaches the tokenizer and never judges.
rule train_teacher:
    input:
        stages.inputs("train_teacher"),
    output:
        stages.outputs("train_teacher"),
    log:
        "logs/train_teacher.log",
    benchmark:
        "logs/timing/train_teacher.tsv"
    priority: 1  # a long way through the DAG leads here
    threads: stages.threads("train_teacher")
    resources:
        gpu=stages.gpu("train_teacher"),
    shell:
        "dvc --wait-for-lock repro --single-item train_teacher && python workflow/in_cache.py train_teacher"


# Train the autoencoder.
rule train_tokenizer:
    input:
        stages.inputs("train_tokenizer"),
    output:
        stages.outputs("train_tokenizer"),
    log:
        "logs/train_tokenizer.log",
    benchmark:
        "logs/timing/train_tokenizer.tsv"
    priority: 1  # a long way through the DAG leads here
    threads: stages.threads("train_tokenizer")
    resources:
        gpu=stages.gpu("train_tokenizer"),
    shell:
        "dvc --wait-for-lock repro --single-item train_tokenizer && python workflow/in_cache.py train_tokenizer"


# Compare reconstructions with their originals.
rule score_tokenizer:
    input:
        stages.inputs("score_tokenizer"),
    output:
        report(
            stages.outputs("score_tokenizer"),
            patterns=["{name}.png"],
            caption="../report/reconstructions.rst",
            category="Scores",
        ),
    log:
        "logs/score_tokenizer.log",
    benchmark:
        "logs/timing/score_tokenizer.tsv"
    threads: stages.threads("score_tokenizer")
    resources:
        gpu=stages.gpu("score_tokenizer"),
    shell:
        "dvc --wait-for-lock repro --single-item score_tokenizer && python workflow/in_cache.py score_tokenizer"


# Generate images with the tokenizer alone, where its kind generates.
rule sample_tokenizer:
    input:
        stages.inputs("sample_tokenizer"),
    output:
        stages.outputs("sample_tokenizer"),
    log:
        "logs/sample_tokenizer.log",
    benchmark:
        "logs/timing/sample_tokenizer.tsv"
    threads: stages.threads("sample_tokenizer")
    resources:
        gpu=stages.gpu("sample_tokenizer"),
    shell:
        "dvc --wait-for-lock repro --single-item sample_tokenizer && python workflow/in_cache.py sample_tokenizer"


# Compare the tokenizer's own images with real ones.
rule score_tokenizer_samples:
    input:
        stages.inputs("score_tokenizer_samples"),
    output:
        report(
            stages.outputs("score_tokenizer_samples"),
            caption="../report/scores.rst",
            category="Scores",
        ),
    log:
        "logs/score_tokenizer_samples.log",
    benchmark:
        "logs/timing/score_tokenizer_samples.tsv"
    threads: stages.threads("score_tokenizer_samples")
    resources:
        gpu=stages.gpu("score_tokenizer_samples"),
    shell:
        "dvc --wait-for-lock repro --single-item score_tokenizer_samples && python workflow/in_cache.py score_tokenizer_samples"


# Encode one part.
rule encode_latents:
    input:
        stages.inputs("encode_latents@{item}"),
    output:
        stages.outputs("encode_latents"),
    log:
        "logs/encode_latents-{item}.log",
    benchmark:
        "logs/timing/encode_latents-{item}.tsv"
    priority: 1  # a long way through the DAG leads here
    threads: stages.threads("encode_latents")
    resources:
        gpu=stages.gpu("encode_latents"),
    shell:
        "dvc --wait-for-lock repro --single-item encode_latents@{wildcards.item} && python workflow/in_cache.py encode_latents@{wildcards.item}"
