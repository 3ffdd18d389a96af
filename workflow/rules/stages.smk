# One rule for each stage of dvc.yaml: what they share stands here once, what is a stage's own in the tables.

REPORTED = {  # what `snakemake --report` shows: the category of a stage, and its caption in workflow/report
    "catalog": ("Data", "catalog"),
    "score_tokenizer": ("Scores", "reconstructions"),
    "score_tokenizer_samples": ("Scores", "scores"),
    "score_generator": ("Scores", "scores"),
    "score_decoder": ("Scores", "scores"),
    "score_text": ("Scores", "scores"),
    "sample_tokenizer": ("Samples", "samples"),
    "sample_generator": ("Samples", "samples"),
    "sample_decoder": ("Samples", "samples"),
    "sample_text": ("Samples", "samples"),
    "report": ("Page", "page"),
}


def reported(stage):
    """Return the outputs of a stage, marked for `snakemake --report` where it shows them: of folders the pictures."""
    outputs = stages.outputs(stage)
    if stage not in REPORTED:
        return outputs
    category, caption = REPORTED[stage]
    return report(
        outputs,
        patterns=["{name}.png", "{name}.html"],
        caption=f"../report/{caption}.rst",
        category=category,
        subcategory=stage,
    )


# In a loop Snakemake evaluates `shell` and `params` late (snakemake#2832): neither names `stage`.
for stage in stages.names:

    rule:
        name:
            stage
        input:
            stages.inputs(stage),
        output:
            reported(stage),
        log:
            f"logs/{stages.file_name(stage)}.log",
        benchmark:
            f"logs/timing/{stages.file_name(stage)}.tsv"
        priority: stages.priority(stage)
        threads: stages.threads(stage)
        resources:
            gpu=stages.gpu(stage),
        params:
            at=lambda wildcards: "".join(f"@{item}" for item in wildcards),
        shell:
            "dvc --wait-for-lock repro --single-item {rule}{params.at}"
            " && python workflow/in_cache.py {rule}{params.at}"
