# Read, check and crop one part. Tried twice: a source may lie behind a network.
rule ingest:
    input:
        stages.inputs("ingest@{item}"),
    output:
        stages.outputs("ingest"),
    log:
        "logs/ingest-{item}.log",
    benchmark:
        "logs/timing/ingest-{item}.tsv"
    priority: 1  # everything but the scene reader waits for it
    retries: 1
    threads: stages.threads("ingest")
    shell:
        "dvc --wait-for-lock repro --single-item ingest@{wildcards.item} && python workflow/in_cache.py ingest@{wildcards.item}"


# Number the classes, count the images, find duplicates.
rule catalog:
    input:
        stages.inputs("catalog"),
    output:
        stages.outputs("catalog"),
    log:
        "logs/catalog.log",
    benchmark:
        "logs/timing/catalog.tsv"
    threads: stages.threads("catalog")
    shell:
        "dvc --wait-for-lock repro --single-item catalog && python workflow/in_cache.py catalog"
