# One rule for each stage of dvc.yaml: what they share stands here once, what is a stage's own in the tables.

RETRIES = {"ingest": 1}  # a source may lie behind a network
SCORES = {"caption": "../report/scores.rst", "category": "Scores"}
REPORTED = {  # what `snakemake --report` shows
    "score_tokenizer": {
        "patterns": ["{name}.png"],
        "caption": "../report/reconstructions.rst",
        "category": "Scores",
    },
    "score_tokenizer_samples": SCORES,
    "score_generator": SCORES,
    "score_decoder": SCORES,
    "score_text": SCORES,
    "report": {
        "htmlindex": "index.html",
        "caption": "../report/page.rst",
        "category": "Page",
    },
}

# In a loop Snakemake evaluates `shell` and `params` late (snakemake#2832): neither names `stage`.
for stage in stages.names:

    rule:
        name:
            stage
        input:
            stages.inputs(stage),
        output:
            report(stages.outputs(stage), **REPORTED[stage])
            if stage in REPORTED
            else stages.outputs(stage),
        log:
            f"logs/{stages.file_name(stage)}.log",
        benchmark:
            f"logs/timing/{stages.file_name(stage)}.tsv"
        priority: stages.priority(stage)
        retries: RETRIES.get(stage, 0)
        threads: stages.threads(stage)
        resources:
            gpu=stages.gpu(stage),
        params:
            at=lambda wildcards: "".join(f"@{item}" for item in wildcards),
        shell:
            "PYTHONPATH=src python -m darkroom.dag.dvc repro --single-item {rule}{params.at}"
            " && python workflow/in_cache.py {rule}{params.at}"
