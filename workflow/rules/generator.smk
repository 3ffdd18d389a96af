# Train the diffusion transformer.
rule train_generator:
    input:
        stages.inputs("train_generator"),
    output:
        stages.outputs("train_generator"),
    log:
        "logs/train_generator.log",
    benchmark:
        "logs/timing/train_generator.tsv"
    priority: 1  # a long way through the DAG leads here
    threads: stages.threads("train_generator")
    resources:
        gpu=stages.gpu("train_generator"),
    shell:
        "dvc --wait-for-lock repro --single-item train_generator && python workflow/in_cache.py train_generator"


# Generate images.
rule sample_generator:
    input:
        stages.inputs("sample_generator"),
    output:
        stages.outputs("sample_generator"),
    log:
        "logs/sample_generator.log",
    benchmark:
        "logs/timing/sample_generator.tsv"
    threads: stages.threads("sample_generator")
    resources:
        gpu=stages.gpu("sample_generator"),
    shell:
        "dvc --wait-for-lock repro --single-item sample_generator && python workflow/in_cache.py sample_generator"


# Compare generated images with real ones.
rule score_generator:
    input:
        stages.inputs("score_generator"),
    output:
        report(
            stages.outputs("score_generator"),
            caption="../report/scores.rst",
            category="Scores",
        ),
    log:
        "logs/score_generator.log",
    benchmark:
        "logs/timing/score_generator.tsv"
    threads: stages.threads("score_generator")
    resources:
        gpu=stages.gpu("score_generator"),
    shell:
        "dvc --wait-for-lock repro --single-item score_generator && python workflow/in_cache.py score_generator"
