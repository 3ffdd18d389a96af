# Train the network that judges and never teaches.
rule train_extractor:
    input:
        stages.inputs("train_extractor"),
    output:
        stages.outputs("train_extractor"),
    log:
        "logs/train_extractor.log",
    benchmark:
        "logs/timing/train_extractor.tsv"
    threads: stages.threads("train_extractor")
    resources:
        gpu=stages.gpu("train_extractor"),
    shell:
        "dvc --wait-for-lock repro --single-item train_extractor && python workflow/in_cache.py train_extractor"


# Features of the real images, and what unseen real images score.
rule reference_stats:
    input:
        stages.inputs("reference_stats"),
    output:
        stages.outputs("reference_stats"),
    log:
        "logs/reference_stats.log",
    benchmark:
        "logs/timing/reference_stats.tsv"
    threads: stages.threads("reference_stats")
    resources:
        gpu=stages.gpu("reference_stats"),
    shell:
        "dvc --wait-for-lock repro --single-item reference_stats && python workflow/in_cache.py reference_stats"
