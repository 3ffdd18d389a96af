# Train CLIP on images and their captions.
rule train_clip:
    input:
        stages.inputs("train_clip"),
    output:
        stages.outputs("train_clip"),
    log:
        "logs/train_clip.log",
    benchmark:
        "logs/timing/train_clip.tsv"
    priority: 1  # a long way through the DAG leads here
    threads: stages.threads("train_clip")
    resources:
        gpu=stages.gpu("train_clip"),
    shell:
        "dvc --wait-for-lock repro --single-item train_clip && python workflow/in_cache.py train_clip"


# Embed one part.
rule embed_clip:
    input:
        stages.inputs("embed_clip@{item}"),
    output:
        stages.outputs("embed_clip"),
    log:
        "logs/embed_clip-{item}.log",
    benchmark:
        "logs/timing/embed_clip-{item}.tsv"
    priority: 1  # a long way through the DAG leads here
    threads: stages.threads("embed_clip")
    resources:
        gpu=stages.gpu("embed_clip"),
    shell:
        "dvc --wait-for-lock repro --single-item embed_clip@{wildcards.item} && python workflow/in_cache.py embed_clip@{wildcards.item}"
