# Train the prior, from a text to the embedding of an image.
rule train_prior:
    input:
        stages.inputs("train_prior"),
    output:
        stages.outputs("train_prior"),
    log:
        "logs/train_prior.log",
    benchmark:
        "logs/timing/train_prior.tsv"
    threads: stages.threads("train_prior")
    resources:
        gpu=stages.gpu("train_prior"),
    shell:
        "dvc --wait-for-lock repro --single-item train_prior && python workflow/in_cache.py train_prior"


# Make images of captions.
rule sample_text:
    input:
        stages.inputs("sample_text"),
    output:
        stages.outputs("sample_text"),
    log:
        "logs/sample_text.log",
    benchmark:
        "logs/timing/sample_text.tsv"
    threads: stages.threads("sample_text")
    resources:
        gpu=stages.gpu("sample_text"),
    shell:
        "dvc --wait-for-lock repro --single-item sample_text && python workflow/in_cache.py sample_text"


# Compare them with their captions.
rule score_text:
    input:
        stages.inputs("score_text"),
    output:
        report(
            stages.outputs("score_text"),
            caption="../report/scores.rst",
            category="Scores",
        ),
    log:
        "logs/score_text.log",
    benchmark:
        "logs/timing/score_text.tsv"
    threads: stages.threads("score_text")
    resources:
        gpu=stages.gpu("score_text"),
    shell:
        "dvc --wait-for-lock repro --single-item score_text && python workflow/in_cache.py score_text"
