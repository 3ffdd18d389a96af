# Train the diffusion transformer.
rule train_dit:
    input:
        stages.inputs("train_dit"),
    output:
        stages.outputs("train_dit"),
    log:
        "logs/train_dit.log",
    benchmark:
        "logs/timing/train_dit.tsv"
    priority: 1  # a long way through the DAG leads here
    threads: stages.threads("train_dit")
    resources:
        gpu=stages.gpu("train_dit"),
    shell:
        "dvc --wait-for-lock repro --single-item train_dit && python workflow/in_cache.py train_dit"


# Generate images.
rule sample_dit:
    input:
        stages.inputs("sample_dit"),
    output:
        stages.outputs("sample_dit"),
    log:
        "logs/sample_dit.log",
    benchmark:
        "logs/timing/sample_dit.tsv"
    threads: stages.threads("sample_dit")
    resources:
        gpu=stages.gpu("sample_dit"),
    shell:
        "dvc --wait-for-lock repro --single-item sample_dit && python workflow/in_cache.py sample_dit"


# Compare generated images with real ones.
rule score_dit:
    input:
        stages.inputs("score_dit"),
    output:
        report(
            stages.outputs("score_dit"),
            caption="../report/scores.rst",
            category="Scores",
        ),
    log:
        "logs/score_dit.log",
    benchmark:
        "logs/timing/score_dit.tsv"
    threads: stages.threads("score_dit")
    resources:
        gpu=stages.gpu("score_dit"),
    shell:
        "dvc --wait-for-lock repro --single-item score_dit && python workflow/in_cache.py score_dit"
