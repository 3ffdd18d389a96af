# One rule for each stage of dvc.yaml; what differs between stages is in the table.

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

# In a loop Snakemake evaluates `shell` and `params` late (snakemake#2832): neither names `stage`.
for stage in stages.names:

    rule:
        name:
            stage
        input:
            stages.inputs(stage),
        output:
            report(
                stages.outputs(stage),
                patterns=["{name}.png", "{name}.html"],
                caption=f"../report/{REPORTED[stage][1]}.rst",
                category=REPORTED[stage][0],
                subcategory=stage,
            )
            if stage in REPORTED
            else stages.outputs(stage),
        log:
            f"logs/{stages.file_name(stage)}.log",
        benchmark:
            f"logs/timing/{stages.file_name(stage)}.tsv"
        priority: stages.priority(stage)
        localrule: stages.is_local(stage)
        threads: stages.threads(stage)
        resources:
            **stages.nodes(stage),
            gpu=stages.gpu(stage),
            seconds=stages.seconds(stage),  # expected; the scheduler reads them
        params:
            at=lambda wildcards: "".join(f"@{item}" for item in wildcards),
            nodes=lambda wildcards, resources: resources.get("nodes", 1),
        shell:
            "DARKROOM_NODES={params.nodes} PYTHONPATH=src python -S -m darkroom.dag.parents reproduce {rule}{params.at}"
